//! What this process knows of its own grants.
//!
//! This is only a cache. What is not found here is read from etcd, so that any process can
//! renew or unlock what another one granted.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    backend::etcd::{lease::pool::Lease, revision::Revision},
    lock::{AttemptId, LockId, ResourceId},
};

/// A grant under a lease of this process.
#[derive(Clone, Debug)]
pub(crate) struct LocalGrant {
    pub(crate) lock_id: LockId,
    /// Its token: the creation revision of its key.
    pub(crate) token: Revision,
    /// The revision of this process's last write of its key, if known.
    pub(crate) written: Option<Revision>,
    pub(crate) lease: Lease,
    /// Until when the grant lives even if the leader of the term in which its lease was
    /// granted comes back. Counted from the last keep-alive that this leader has seen.
    pub(crate) sure_until: Instant,
    /// The attempt that made it; `None` once a replay has claimed it.
    pub(crate) attempt: Option<AttemptId>,
}

impl LocalGrant {
    /// A grant that was just written under this lease. `term` is the current term, read
    /// after the answer.
    pub(crate) fn new(lock_id: LockId, token: Revision, lease: Lease, term: u64) -> Self {
        // If the term has changed, perhaps only the new leader has seen the last keep-alive
        // of the lease.
        let sure_until = if lease.origin.term == term { lease.ends() } else { lease.refreshed };
        Self { lock_id, token, written: None, lease, sure_until, attempt: None }
    }

    /// Until when it certainly lives, unless somebody ends it.
    pub(crate) fn ends(&self) -> Instant {
        self.lease.ends()
    }
}

/// A grant that is to be moved to another lease.
#[derive(Clone, Debug)]
pub(crate) struct ToMove {
    pub(crate) resource: ResourceId,
    pub(crate) lock_id: LockId,
    /// The grant is safe until then; see [`LocalGrant::sure_until`].
    pub(crate) sure_until: Instant,
}

/// The grants that this process made and that are not known to have ended.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    made: Mutex<HashMap<ResourceId, LocalGrant>>,
}

impl Grants {
    /// The live grant of this lock ID.
    pub(crate) fn named(&self, resource: &ResourceId, lock_id: &LockId) -> Option<LocalGrant> {
        self.find(resource, |grant| grant.lock_id == *lock_id)
    }

    /// The live grant that this attempt made.
    pub(crate) fn made_by(
        &self,
        resource: &ResourceId,
        attempt: AttemptId,
    ) -> Option<LocalGrant> {
        self.find(resource, |grant| grant.attempt == Some(attempt))
    }

    /// Remembers a grant, and returns the one before it, which has ended without this
    /// process.
    pub(crate) fn insert(
        &self,
        resource: &ResourceId,
        grant: LocalGrant,
    ) -> Option<LocalGrant> {
        self.made().insert(resource.clone(), grant)
    }

    /// Remembers a grant that this process moved to one of its leases, and returns what was
    /// known of it, or of an earlier grant. If a later grant is known, this one has ended
    /// meanwhile, and nothing changes.
    pub(crate) fn moved(&self, resource: &ResourceId, grant: LocalGrant) -> Option<LocalGrant> {
        let mut made = self.made();
        if made.get(resource).is_some_and(|known| known.token > grant.token) {
            return None;
        }
        made.insert(resource.clone(), grant)
    }

    /// Forgets a grant with a smaller token: it has ended without this process.
    pub(crate) fn remove_older(
        &self,
        resource: &ResourceId,
        token: Revision,
    ) -> Option<LocalGrant> {
        let mut made = self.made();
        made.get(resource)
            .is_some_and(|grant| grant.token < token)
            .then(|| made.remove(resource))?
    }

    /// Forgets the grant with this token.
    pub(crate) fn remove(&self, resource: &ResourceId, token: Revision) -> Option<LocalGrant> {
        let mut made = self.made();
        made.get(resource)
            .is_some_and(|grant| grant.token == token)
            .then(|| made.remove(resource))?
    }

    /// What this process knows of a grant that was read from etcd with this token and under
    /// this lease. If it knows an earlier grant instead, or the same one under another
    /// lease, that has ended without this process: it is forgotten, and returned second.
    pub(crate) fn found(
        &self,
        resource: &ResourceId,
        token: Revision,
        lease: i64,
    ) -> (Option<LocalGrant>, Option<LocalGrant>) {
        let mut made = self.made();
        match made.get(resource) {
            Some(grant) if grant.token == token && grant.lease.id == lease => {
                (Some(grant.clone()), None)
            }
            Some(grant) if grant.token <= token => (None, made.remove(resource)),
            _ => (None, None),
        }
    }

    /// Notes that the lease of a grant was kept alive by a request sent at `sent`, and that
    /// the term was `term` after its answer.
    pub(crate) fn refreshed(
        &self,
        resource: &ResourceId,
        lease: i64,
        sent: Instant,
        term: u64,
    ) {
        let mut made = self.made();
        if let Some(grant) = made.get_mut(resource).filter(|grant| grant.lease.id == lease) {
            grant.lease.refreshed = grant.lease.refreshed.max(sent);
            if grant.lease.origin.term == term {
                grant.sure_until = grant.ends();
            }
        }
    }

    /// Up to `count` of the grants whose lease was granted in another term, the most urgent
    /// ones first.
    pub(crate) fn to_move(&self, term: u64, count: usize) -> Vec<ToMove> {
        let now = Instant::now();
        let mut found: Vec<_> = {
            let made = self.made();
            let of_before = made
                .iter()
                .filter(|(_, grant)| grant.lease.origin.term != term && now < grant.ends());
            let mut urgent: Vec<_> =
                of_before.map(|(resource, grant)| (grant.sure_until, resource)).collect();
            if urgent.len() > count {
                urgent.select_nth_unstable_by_key(count, |(sure_until, _)| *sure_until);
                urgent.truncate(count);
            }
            urgent
                .into_iter()
                .filter_map(|(sure_until, resource)| {
                    let lock_id = made.get(resource)?.lock_id.clone();
                    Some(ToMove { resource: resource.clone(), lock_id, sure_until })
                })
                .collect()
        };
        found.sort_unstable_by_key(|grant| grant.sure_until);
        found
    }

    /// Forgets grants that have expired; their leases have ended with them.
    pub(crate) fn purge(&self, now: Instant) {
        let mut made = self.made();
        made.retain(|_, grant| now < grant.ends());
        if made.capacity() > 4 * made.len() + 1_024 {
            made.shrink_to_fit();
        }
    }

    fn find(
        &self,
        resource: &ResourceId,
        which: impl Fn(&LocalGrant) -> bool,
    ) -> Option<LocalGrant> {
        let made = self.made();
        let grant = made.get(resource)?;
        (which(grant) && Instant::now() < grant.ends()).then(|| grant.clone())
    }

    fn made(&self) -> MutexGuard<'_, HashMap<ResourceId, LocalGrant>> {
        self.made.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::backend::etcd::client::link::Origin;

    fn grant(token: u64) -> LocalGrant {
        LocalGrant {
            lock_id: LockId::new("me").unwrap(),
            token: Revision(token),
            written: Some(Revision(token)),
            lease: lease(1, 1),
            sure_until: Instant::now() + Duration::from_secs(3),
            attempt: Some(AttemptId::random()),
        }
    }

    fn lease(id: i64, term: u64) -> Lease {
        let origin = Origin { connection: 1, term };
        Lease { id, asked_s: 3, ttl_s: 3, refreshed: Instant::now(), origin }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_known_until_it_may_have_expired() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        let me = LockId::new("me").unwrap();
        assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(5));
        assert!(grants.named(&resource, &LockId::new("you").unwrap()).is_none());
        advance(Duration::from_secs(2)).await;
        grants.refreshed(&resource, 1, Instant::now(), 1);
        advance(Duration::from_secs(2)).await;
        assert!(grants.named(&resource, &me).is_some(), "renewed");
        advance(Duration::from_secs(1)).await;
        assert!(grants.named(&resource, &me).is_none());
        grants.purge(Instant::now());
        assert!(grants.made().is_empty());
    }

    #[test]
    fn only_the_grant_with_the_token_is_removed() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        assert!(grants.remove(&resource, Revision(4)).is_none());
        assert!(grants.remove(&resource, Revision(5)).is_some());
    }

    #[test]
    fn a_grant_under_another_lease_is_no_longer_this_process() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        assert_eq!(grants.found(&resource, Revision(5), 1).0.unwrap().lease.id, 1);
        let (known, ended) = grants.found(&resource, Revision(5), 2);
        assert!(known.is_none());
        assert_eq!(ended.unwrap().lease.id, 1, "it is to be revoked");
        assert!(grants.made().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_of_another_lease_refreshes_nothing() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        let before = Instant::now();
        advance(Duration::from_secs(1)).await;
        grants.refreshed(&resource, 2, Instant::now(), 1);
        assert_eq!(grants.made()[&resource].lease.refreshed, before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_keep_alive_in_a_later_term_makes_nothing_surer() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        let sure_until = grants.made()[&resource].sure_until;
        advance(Duration::from_secs(1)).await;
        grants.refreshed(&resource, 1, Instant::now(), 2);
        assert_eq!(grants.made()[&resource].sure_until, sure_until);
        grants.refreshed(&resource, 1, Instant::now(), 1);
        assert!(grants.made()[&resource].sure_until > sure_until);
        let me = LockId::new("me").unwrap();
        let made_since_an_election = LocalGrant::new(me, Revision(6), lease(2, 1), 2);
        assert!(made_since_an_election.sure_until <= Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_grants_of_an_earlier_term_are_moved_first() {
        let grants = Grants::default();
        for n in [3, 1, 4, 2_u64] {
            let sure_until = Instant::now() + Duration::from_secs(n);
            let lease = lease(1, n % 4);
            let resource = ResourceId::new(&format!("r{n}")).unwrap();
            grants.insert(&resource, LocalGrant { sure_until, lease, ..grant(n) });
        }
        let named = |found: Vec<ToMove>| {
            found.iter().map(|grant| grant.resource.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named(grants.to_move(2, 9)), ["r1", "r3", "r4"]);
        assert_eq!(named(grants.to_move(2, 2)), ["r1", "r3"]);
        assert!(grants.to_move(3, 0).is_empty());
    }
}
