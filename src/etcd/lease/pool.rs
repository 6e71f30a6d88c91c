//! Leases kept for reuse, as a state machine without a clock or a server.
//!
//! A lease lasts a second longer than the grants made under it ([`SLACK`]). Until that
//! second has passed since its last keep-alive, it still covers the whole TTL of a new
//! grant; after that it needs another keep-alive before it is used. Leases are taken last
//! in, first out, so that a busy store's leases are always fresh and surplus ones age.
//!
//! [`Origin::allows_reuse`] says when an idle lease must not be reused.

use std::{collections::HashMap, time::Duration};

use leasehold_lock::Instant;

use crate::client::link::Origin;

/// How much longer a lease lasts than a grant under it.
pub(crate) const SLACK: Duration = Duration::from_secs(1);
/// With less slack left than this, a lease is refreshed before it is used, so that the
/// write is still in time.
const SLACK_MIN: Duration = Duration::from_millis(250);
/// The age from which a lease that was just used is refreshed ahead of its next use.
const REFRESH_AGE: Duration = Duration::from_millis(400);
/// For how long after its last use a lease is kept fresh, not merely alive.
const HOT: Duration = Duration::from_secs(2);
/// How long a lease is kept unused.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A lease of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Its ID in etcd.
    pub(crate) id: i64,
    /// The TTL asked for.
    pub(crate) asked_s: u64,
    /// The TTL granted: at least that.
    pub(crate) ttl_s: u64,
    /// When the request that last started its TTL was sent.
    pub(crate) refreshed: Instant,
    /// The connection and term of its grant.
    pub(crate) origin: Origin,
}

impl Lease {
    /// Until when it covers the whole TTL of a new grant.
    pub(crate) fn fresh_until(&self) -> Instant {
        self.refreshed + SLACK
    }

    /// Whether a write that is sent now may use it.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now + SLACK_MIN <= self.fresh_until()
    }

    /// The TTL of a grant under it.
    pub(crate) fn grant_ttl(&self) -> Duration {
        Duration::from_secs(self.ttl_s).saturating_sub(SLACK)
    }

    /// Until when it certainly lives, unless somebody revokes it.
    pub(crate) fn ends(&self) -> Instant {
        self.refreshed + Duration::from_secs(self.ttl_s)
    }
}

/// Due actions on idle leases.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chores {
    /// To be kept alive.
    pub(crate) refresh: Vec<i64>,
    /// To be revoked; no longer in the pool.
    pub(crate) revoke: Vec<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Idle {
    lease: Lease,
    used: Instant,
    /// When a keep-alive was last sent, if it has not been answered.
    asked: Option<Instant>,
}

/// The idle leases, by the TTL asked for.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: HashMap<u64, Vec<Idle>>,
    kept: usize,
    kept_max: usize,
}

impl Pool {
    /// A pool that keeps up to `kept_max` leases.
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { idle: HashMap::new(), kept: 0, kept_max }
    }

    /// The most recently used lease of this TTL. It belongs to the caller until given back,
    /// and may need refreshing.
    pub(crate) fn take(&mut self, asked_s: u64) -> Option<Lease> {
        let of_ttl = self.idle.get_mut(&asked_s)?;
        let taken = of_ttl.pop();
        if of_ttl.is_empty() {
            self.idle.remove(&asked_s);
        }
        self.kept -= usize::from(taken.is_some());
        taken.map(|idle| idle.lease)
    }

    /// Whether there is a lease of this TTL.
    pub(crate) fn has(&self, asked_s: u64) -> bool {
        self.idle.contains_key(&asked_s)
    }

    /// Keeps a lease under which nothing lives any more. Returns it, to be revoked, if the
    /// pool is full.
    pub(crate) fn give(&mut self, lease: Lease, now: Instant) -> Result<(), Lease> {
        if self.kept >= self.kept_max {
            return Err(lease);
        }
        self.kept += 1;
        self.idle.entry(lease.asked_s).or_default().push(Idle {
            lease,
            used: now,
            asked: None,
        });
        Ok(())
    }

    /// Notes that an idle lease was kept alive by a request sent at `sent`.
    pub(crate) fn refreshed(&mut self, id: i64, sent: Instant) {
        if let Some(idle) = self.idle.values_mut().flatten().find(|idle| idle.lease.id == id) {
            idle.lease.refreshed = idle.lease.refreshed.max(sent);
            idle.asked = None;
        }
    }

    /// Notes that a lease does not exist any more.
    pub(crate) fn died(&mut self, id: i64) {
        self.remove(|idle| idle.lease.id == id);
    }

    /// What is due at `now`, when leases are granted at `origin`.
    pub(crate) fn chores(&mut self, now: Instant, origin: Origin) -> Chores {
        let revoke = self.remove(|idle| {
            now >= idle.used + IDLE_MAX || !idle.lease.origin.allows_reuse(origin)
        });
        let mut refresh = Vec::new();
        for idle in self.idle.values_mut().flatten() {
            let age = now.saturating_duration_since(idle.lease.refreshed);
            let hot = now < idle.used + HOT && age >= REFRESH_AGE;
            let due = hot || age >= Duration::from_secs(idle.lease.ttl_s) / 3;
            if due && idle.asked.is_none_or(|asked| now >= asked + SLACK) {
                idle.asked = Some(now);
                refresh.push(idle.lease.id);
            }
        }
        Chores { refresh, revoke }
    }

    /// Empties the pool.
    pub(crate) fn drain(&mut self) -> Vec<i64> {
        self.remove(|_| true)
    }

    fn remove(&mut self, which: impl Fn(&Idle) -> bool) -> Vec<i64> {
        let mut removed = Vec::new();
        self.idle.retain(|_, of_ttl| {
            of_ttl.retain(|idle| {
                let goes = which(idle);
                if goes {
                    removed.push(idle.lease.id);
                }
                !goes
            });
            !of_ttl.is_empty()
        });
        self.kept -= removed.len();
        removed
    }
}

#[cfg(test)]
mod tests {
    use leasehold_lock::suspend;
    use tokio::time::advance;

    use super::*;

    const ORIGIN: Origin = Origin { connection: 1, term: 1 };

    fn lease(id: i64, asked_s: u64) -> Lease {
        Lease { id, asked_s, ttl_s: asked_s, refreshed: Instant::now(), origin: ORIGIN }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_used_lease_of_the_same_ttl_is_taken() {
        let mut pool = Pool::new(9);
        for (id, ttl) in [(1, 31), (2, 31), (3, 11)] {
            pool.give(lease(id, ttl), Instant::now()).unwrap();
        }
        assert_eq!(pool.take(31).unwrap().id, 2);
        assert_eq!(pool.take(31).unwrap().id, 1);
        assert!(pool.take(31).is_none() && pool.take(12).is_none());
    }

    /// Trap: etcd 15
    #[tokio::test(start_paused = true)]
    async fn a_lease_gives_a_whole_grant_only_while_its_slack_lasts() {
        let lease = lease(1, 31);
        assert_eq!(lease.grant_ttl(), Duration::from_secs(30));
        assert!(lease.is_fresh(Instant::now()));
        advance(Duration::from_millis(751)).await;
        assert!(!lease.is_fresh(Instant::now()));
        let left = lease.refreshed + Duration::from_secs(31) - Instant::now();
        assert!(left > lease.grant_ttl(), "refreshed before it is too late, not after");
    }

    /// Trap: etcd 32
    #[tokio::test(start_paused = true)]
    async fn no_lease_is_fresh_after_the_machine_was_suspended() {
        let lease = lease(1, 31);
        suspend(SLACK);
        assert!(!lease.is_fresh(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_used_lease_is_kept_fresh_and_an_unused_one_alive() {
        let mut pool = Pool::new(9);
        pool.give(lease(1, 31), Instant::now()).unwrap();
        assert_eq!(pool.chores(Instant::now(), ORIGIN), Chores::default());
        advance(REFRESH_AGE).await;
        assert_eq!(pool.chores(Instant::now(), ORIGIN).refresh, [1]);
        assert_eq!(pool.chores(Instant::now(), ORIGIN), Chores::default(), "asked for once");
        pool.refreshed(1, Instant::now());
        advance(HOT).await;
        assert_eq!(pool.chores(Instant::now(), ORIGIN), Chores::default());
        advance(Duration::from_secs(9)).await;
        assert_eq!(pool.chores(Instant::now(), ORIGIN).refresh, [1]);
    }

    /// Trap: etcd 3
    #[tokio::test(start_paused = true)]
    async fn what_is_unused_for_long_or_too_much_is_revoked() {
        let mut pool = Pool::new(1);
        pool.give(lease(1, 31), Instant::now()).unwrap();
        assert_eq!(pool.give(lease(2, 31), Instant::now()).unwrap_err().id, 2);
        advance(IDLE_MAX).await;
        assert_eq!(pool.chores(Instant::now(), ORIGIN).revoke, [1]);
        assert!(pool.take(31).is_none());
        assert!(pool.give(lease(3, 31), Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_from_before_the_connection_is_revoked() {
        let mut pool = Pool::new(9);
        pool.give(lease(1, 31), Instant::now()).unwrap();
        assert_eq!(pool.chores(Instant::now(), ORIGIN), Chores::default());
        let reconnected = Origin { connection: 2, ..ORIGIN };
        assert_eq!(pool.chores(Instant::now(), reconnected).revoke, [1]);
        assert!(pool.take(31).is_none());
    }

    /// Trap: etcd 33
    #[tokio::test(start_paused = true)]
    async fn a_lease_from_an_earlier_term_is_revoked() {
        let mut pool = Pool::new(9);
        pool.give(lease(1, 31), Instant::now()).unwrap();
        let elected = Origin { term: 2, ..ORIGIN };
        assert_eq!(pool.chores(Instant::now(), elected).revoke, [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_lease_is_forgotten() {
        let mut pool = Pool::new(1);
        pool.give(lease(1, 31), Instant::now()).unwrap();
        pool.died(1);
        assert!(pool.take(31).is_none() && pool.drain().is_empty());
        assert!(pool.give(lease(2, 31), Instant::now()).is_ok());
    }
}
