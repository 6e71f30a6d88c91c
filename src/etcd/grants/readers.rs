//! The shared grants of one resource: this process's own, and about how many there are.
//!
//! etcd cannot compare a number of keys, so the limit of shared grants is checked before a
//! try is sent. Own grants and tries are counted exactly. Those of other processes are
//! counted by a read, which is repeated each second, or before each try near the limit.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use leasehold_lock::{AttemptId, Instant, LockId};

use crate::{grants::local_grant::LocalGrant, revision::Revision};

/// How long the count of other processes' grants is used.
const COUNT_MAX_AGE: Duration = Duration::from_secs(1);
/// Within this fraction of the limit, and at least so many below it, tries count first. So
/// with a limit up to that each try does.
const NEAR_FRACTION: usize = 8;
const NEAR_MIN: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Readers {
    own: HashMap<LockId, LocalGrant>,
    /// Tries of this process that may become grants.
    trying: HashSet<AttemptId>,
    /// How many grants other processes had when last counted, and when that was.
    others: usize,
    counted: Option<Instant>,
}

/// How many shared grants a resource had at a revision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) grants: usize,
    pub(crate) at: Revision,
}

/// Why a try has no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// The grants must be counted first.
    Unknown,
    /// The limit is reached.
    Full,
}

impl Readers {
    pub(super) fn get(&self, lock_id: &LockId) -> Option<&LocalGrant> {
        self.own.get(lock_id)
    }

    pub(super) fn get_mut(&mut self, lock_id: &LockId) -> Option<&mut LocalGrant> {
        self.own.get_mut(lock_id)
    }

    /// The number of own grants, expired ones included.
    pub(super) fn len(&self) -> usize {
        self.own.len()
    }

    /// Remembers a grant, which takes the place of the try that made it.
    pub(super) fn insert(&mut self, grant: LocalGrant) -> Option<LocalGrant> {
        if let Some(attempt) = &grant.attempt {
            self.trying.remove(attempt);
        }
        self.own.insert(grant.name.lock_id.clone(), grant)
    }

    pub(super) fn remove(&mut self, lock_id: &LockId) -> Option<LocalGrant> {
        self.own.remove(lock_id)
    }

    /// Reserves one of `max` grants for a try. `counted` is how many there were just now, if
    /// that was read.
    pub(super) fn reserve(
        &mut self,
        attempt: AttemptId,
        max: usize,
        counted: Option<Count>,
        now: Instant,
    ) -> Result<(), Uncounted> {
        if let Some(Count { grants, at }) = counted {
            self.own.retain(|_, grant| now < grant.ends());
            let newer = self.own.values().filter(|grant| grant.token > at).count();
            let older = self.own.len() - newer;
            self.others = grants.saturating_sub(older);
            self.counted = Some(now);
            // Some of the older ones may have ended without this process. A try that has been
            // granted, but not answered, is among those counted.
            let own = older.min(grants) + newer + self.trying.len();
            if own.max(grants + newer) >= max {
                return Err(Uncounted::Full);
            }
        } else {
            let near = (max / NEAR_FRACTION).max(NEAR_MIN);
            let known = self.others + self.own.len() + self.trying.len();
            if !self.is_counted(now) || known + near >= max {
                return Err(Uncounted::Unknown);
            }
        }
        self.trying.insert(attempt);
        Ok(())
    }

    /// Gives up what a try has reserved.
    pub(super) fn cancel(&mut self, attempt: AttemptId) {
        self.trying.remove(&attempt);
    }

    /// Forgets grants that have expired; `false` if nothing is left to be remembered.
    pub(super) fn purge(&mut self, now: Instant) -> bool {
        self.own.retain(|_, grant| now < grant.ends());
        !self.is_unused() || self.is_counted(now)
    }

    /// Whether there are neither grants nor tries.
    pub(super) fn is_unused(&self) -> bool {
        self.own.is_empty() && self.trying.is_empty()
    }

    fn is_counted(&self, now: Instant) -> bool {
        self.counted.is_some_and(|at| now < at + COUNT_MAX_AGE)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_lock::Mode;

    use super::*;
    use crate::{client::link::Origin, keys::GrantName, lease::pool::Lease};

    fn reserve(
        readers: &mut Readers,
        max: usize,
        counted: Option<usize>,
    ) -> Result<(), Uncounted> {
        let counted = counted.map(|grants| Count { grants, at: Revision(10) });
        readers.reserve(AttemptId::random(), max, counted, Instant::now())
    }

    fn grant(token: u64) -> LocalGrant {
        let refreshed = Instant::now();
        let lease = Lease { id: 1, asked_s: 3, ttl_s: 3, refreshed, origin: Origin::default() };
        let name = GrantName { mode: Mode::Shared, lock_id: LockId::random(), request: None };
        let (token, attempt) = (Revision(token), None);
        LocalGrant { name, token, written: token, lease, attempt }
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_believed_for_a_second() {
        let mut readers = Readers::default();
        assert_eq!(reserve(&mut readers, 100, None), Err(Uncounted::Unknown));
        reserve(&mut readers, 100, Some(3)).unwrap();
        reserve(&mut readers, 100, None).unwrap();
        tokio::time::advance(COUNT_MAX_AGE).await;
        assert_eq!(reserve(&mut readers, 100, None), Err(Uncounted::Unknown));
    }

    #[test]
    fn near_the_limit_each_try_counts_first() {
        for (max, counted) in [(1_000, 880), (100, 40), (NEAR_MIN, 0)] {
            let mut readers = Readers::default();
            reserve(&mut readers, max, Some(counted)).unwrap();
            assert_eq!(reserve(&mut readers, max, None), Err(Uncounted::Unknown), "{max}");
        }
    }

    #[test]
    fn own_tries_in_flight_never_exceed_the_limit() {
        let mut readers = Readers::default();
        for _ in 0..3 {
            reserve(&mut readers, 3, Some(0)).unwrap();
        }
        assert_eq!(reserve(&mut readers, 3, Some(0)), Err(Uncounted::Full));
    }

    #[test]
    fn a_try_that_was_given_up_leaves_its_place() {
        let (mut readers, attempt) = (Readers::default(), AttemptId::random());
        let none = Some(Count { grants: 0, at: Revision(10) });
        readers.reserve(attempt, 1, none, Instant::now()).unwrap();
        assert_eq!(reserve(&mut readers, 1, Some(0)), Err(Uncounted::Full));
        readers.cancel(attempt);
        reserve(&mut readers, 1, Some(0)).unwrap();
    }

    #[test]
    fn the_grants_of_others_count() {
        let mut readers = Readers::default();
        assert_eq!(reserve(&mut readers, 5, Some(5)), Err(Uncounted::Full));
    }

    #[test]
    fn own_grants_since_the_count_come_on_top() {
        let mut readers = Readers::default();
        readers.insert(grant(11));
        assert_eq!(reserve(&mut readers, 3, Some(2)), Err(Uncounted::Full));
    }

    #[test]
    fn own_grants_that_another_process_ended_do_not_count() {
        let mut readers = Readers::default();
        readers.insert(grant(8));
        readers.insert(grant(9));
        reserve(&mut readers, 2, Some(0)).unwrap();
    }
}
