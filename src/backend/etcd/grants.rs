//! What this process knows of its own grants and attempts.
//!
//! Only a short cut: whatever is not found here is read from etcd, so that any
//! process can renew or unlock what another one granted.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pool::Lease;
use crate::lock::{AttemptId, LockId, ResourceId};

/// Resources remembered as held; when there are more, all are forgotten, which
/// costs a failed transaction each.
const HELD_MAX: usize = 16_384;

/// A grant under a lease of this process's.
#[derive(Clone, Debug)]
pub(super) struct LocalGrant {
    pub(super) lock_id: LockId,
    /// Its token: the creation revision of its key.
    pub(super) token: u64,
    /// The revision of this process's last write of its key, if known.
    pub(super) written: Option<u64>,
    pub(super) lease: Lease,
    /// Who made it, until a replay claims it.
    pub(super) attempt: Option<AttemptId>,
}

impl LocalGrant {
    /// Until when it certainly lives, unless somebody ends it.
    fn ends(&self) -> Instant {
        self.lease.refreshed + std::time::Duration::from_secs(self.lease.ttl_s)
    }
}

/// The grants made here and not known to have ended.
#[derive(Debug, Default)]
pub(super) struct Grants {
    made: Mutex<HashMap<ResourceId, LocalGrant>>,
    held: Mutex<HashSet<ResourceId>>,
    /// Resources that a waiter is trying to take at once.
    tried: Mutex<HashSet<ResourceId>>,
}

/// The only waiter of this process that tries to take a resource at once.
pub(super) struct FirstTry<'a> {
    grants: &'a Grants,
    resource: &'a ResourceId,
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        self.grants.tried().remove(self.resource);
    }
}

impl Grants {
    /// The live grant of this name.
    pub(super) fn named(&self, resource: &ResourceId, lock_id: &LockId) -> Option<LocalGrant> {
        self.find(resource, |grant| grant.lock_id == *lock_id)
    }

    /// The live grant that this attempt made.
    pub(super) fn made_by(
        &self,
        resource: &ResourceId,
        attempt: AttemptId,
    ) -> Option<LocalGrant> {
        self.find(resource, |grant| grant.attempt == Some(attempt))
    }

    /// Remembers a grant; what is returned has ended without this process.
    pub(super) fn insert(
        &self,
        resource: &ResourceId,
        grant: LocalGrant,
    ) -> Option<LocalGrant> {
        self.made().insert(resource.clone(), grant)
    }

    /// Forgets a grant older than the one with this token: it has ended without
    /// this process.
    pub(super) fn remove_older(&self, resource: &ResourceId, token: u64) -> Option<LocalGrant> {
        let mut made = self.made();
        made.get(resource)
            .is_some_and(|grant| grant.token < token)
            .then(|| made.remove(resource))?
    }

    /// Forgets the grant with this token.
    pub(super) fn remove(&self, resource: &ResourceId, token: u64) -> Option<LocalGrant> {
        let mut made = self.made();
        made.get(resource)
            .is_some_and(|grant| grant.token == token)
            .then(|| made.remove(resource))?
    }

    /// Notes that the lease of the grant with this token was kept alive.
    pub(super) fn refreshed(&self, resource: &ResourceId, token: u64, sent: Instant) {
        if let Some(grant) = self.made().get_mut(resource).filter(|grant| grant.token == token)
        {
            grant.lease.refreshed = grant.lease.refreshed.max(sent);
        }
    }

    /// Forgets what has expired; its leases have ended with it.
    pub(super) fn purge(&self, now: Instant) {
        let mut made = self.made();
        made.retain(|_, grant| now < grant.ends());
        if made.capacity() > 4 * made.len() + 1_024 {
            made.shrink_to_fit();
        }
    }

    /// Whether the resource was held when last seen, so that a try had better
    /// read first: a failed transaction is a raft entry too.
    pub(super) fn seems_held(&self, resource: &ResourceId) -> bool {
        self.held().contains(resource)
    }

    /// Notes that the resource was seen held or not.
    pub(super) fn saw(&self, resource: &ResourceId, held: bool) {
        let mut seen = self.held();
        if !held {
            seen.remove(resource);
        } else {
            if seen.len() >= HELD_MAX {
                seen.clear();
            }
            seen.insert(resource.clone());
        }
    }

    /// Lets one waiter at a time try to take the resource at once: of many that
    /// come together at most one can succeed, and each try costs a lease and a
    /// batch. The others queue.
    pub(super) fn first_try<'a>(&'a self, resource: &'a ResourceId) -> Option<FirstTry<'a>> {
        let first = self.tried().insert(resource.clone());
        first.then(|| FirstTry { grants: self, resource })
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
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tried(&self) -> MutexGuard<'_, HashSet<ResourceId>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashSet<ResourceId>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attempt under way. It goes on by itself when its caller has gone, until
/// nothing of it is left unknown.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Cancelled when nobody wants its grant any more.
    pub(super) unwanted: CancellationToken,
    /// Cancelled when it has ended, and all that it sent has taken effect or
    /// never will.
    pub(super) ended: CancellationToken,
    /// Cancelled before, if it is known to have left nothing behind.
    pub(super) left_nothing: CancellationToken,
}

/// The attempts under way.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<AttemptId, Arc<Flight>>>);

impl Flights {
    /// Notes the start of an attempt.
    pub(super) fn start(&self, attempt: AttemptId) -> Arc<Flight> {
        let flight = Arc::new(Flight::default());
        self.flights().insert(attempt, Arc::clone(&flight));
        flight
    }

    /// The attempt, if it is under way.
    pub(super) fn get(&self, attempt: AttemptId) -> Option<Arc<Flight>> {
        self.flights().get(&attempt).cloned()
    }

    /// Notes the end of an attempt.
    pub(super) fn end(&self, attempt: AttemptId) {
        if let Some(flight) = self.flights().remove(&attempt) {
            flight.ended.cancel();
        }
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Flight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn grant(token: u64) -> LocalGrant {
        LocalGrant {
            lock_id: LockId::new("me").unwrap(),
            token,
            written: Some(token),
            lease: Lease { id: 1, asked_s: 3, ttl_s: 3, refreshed: Instant::now(), era: 1 },
            attempt: Some(AttemptId::random()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_known_until_it_may_have_expired() {
        let (grants, resource) = (Grants::default(), ResourceId::new("r").unwrap());
        grants.insert(&resource, grant(5));
        let me = LockId::new("me").unwrap();
        assert_eq!(grants.named(&resource, &me).unwrap().token, 5);
        assert!(grants.named(&resource, &LockId::new("you").unwrap()).is_none());
        advance(Duration::from_secs(2)).await;
        grants.refreshed(&resource, 5, Instant::now());
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
        assert!(grants.remove(&resource, 4).is_none());
        assert!(grants.remove(&resource, 5).is_some());
    }
}
