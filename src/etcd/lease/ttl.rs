//! The TTLs of leases.

use leasehold_lock::Ttl;

/// The shortest grant, in seconds. etcd's shortest lease is 2 s by default, and a lease
/// lasts a second longer than its grant.
const GRANT_MIN_S: u64 = 2;
/// The multiples that longer TTLs are rounded up to, in seconds: the greatest that is at
/// most a 25th of the TTL.
const STEPS_S: [u64; 8] = [1_800, 600, 300, 60, 30, 10, 5, 1];

/// The TTL of the lease of a grant of `ttl`, in seconds. A TTL above two minutes is rounded
/// up by at most a 25th, so that leases can be reused even if every grant has another TTL.
/// The usual ones (5 min, 1 h, 24 h) stay as they are.
pub(crate) fn lease_ttl_s(ttl: Ttl) -> u64 {
    let asked = ttl.as_secs_ceil().max(GRANT_MIN_S);
    let step = STEPS_S.into_iter().find(|step| 25 * step <= asked).unwrap_or(1);
    asked.next_multiple_of(step) + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ttl(seconds: u64) -> Ttl {
        let day = Duration::from_secs(24 * 60 * 60);
        Ttl::new(Duration::from_secs(seconds), day).unwrap()
    }

    /// Trap: etcd 37
    #[test]
    fn a_long_ttl_is_rounded_up_by_a_25th_at_most() {
        let mut classes = std::collections::BTreeSet::new();
        for asked in 2..=24 * 60 * 60 {
            let given = lease_ttl_s(ttl(asked)) - 1;
            assert!(given >= asked && 25 * (given - asked) <= asked, "{asked}: {given}");
            classes.insert(given);
        }
        assert!(classes.len() < 500, "{}", classes.len());
        for usual in [30, 60, 300, 600, 900, 1_800, 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600] {
            assert_eq!(lease_ttl_s(ttl(usual)) - 1, usual);
        }
    }
}
