//! What this process knows of its own grants.
//!
//! This is only a cache. What is not found here is read from etcd, so that any process can
//! renew or unlock what another one granted.

use std::collections::HashMap;

use leasehold_lock::{Attempt, Instant, LockId, Mode, ResourceId};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    keys::GrantName,
    lease::{
        local_grant::LocalGrant,
        readers::{Count, Readers, Uncounted},
    },
    revision::Revision,
};

/// How many resources are remembered at once only for their number of shared grants.
const COUNTED_MAX: usize = 16_384;

/// The grants that this process made and that are not known to have ended.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    exclusive: HashMap<ResourceId, LocalGrant>,
    shared: HashMap<ResourceId, Readers>,
}

impl Grants {
    /// The live grant of this lock ID.
    pub(crate) fn named(&self, resource: &ResourceId, lock_id: &LockId) -> Option<LocalGrant> {
        let made = self.made();
        let exclusive =
            made.exclusive.get(resource).filter(|grant| grant.name.lock_id == *lock_id);
        let shared = made.shared.get(resource).and_then(|readers| readers.get(lock_id));
        // The older one has ended without this process.
        let known = exclusive.into_iter().chain(shared).max_by_key(|grant| grant.token);
        known.filter(|grant| Instant::now() < grant.ends()).cloned()
    }

    /// The live grant that this attempt made.
    pub(crate) fn made_by(&self, attempt: &Attempt) -> Option<LocalGrant> {
        let made = self.made();
        let grant = made.get(&attempt.resource, &GrantName::of(attempt))?;
        let is_its = grant.attempt == Some(attempt.id) && Instant::now() < grant.ends();
        is_its.then(|| grant.clone())
    }

    /// Remembers a grant, and returns the one before it, which has ended without this
    /// process.
    pub(crate) fn insert(
        &self,
        resource: &ResourceId,
        grant: LocalGrant,
    ) -> Option<LocalGrant> {
        self.made().insert(resource, grant)
    }

    /// Remembers a grant that this process moved to one of its leases, and returns what was
    /// known of it, or of an earlier grant. If a later grant is known, this one has ended
    /// meanwhile, and is returned.
    pub(crate) fn moved(&self, resource: &ResourceId, grant: LocalGrant) -> Option<LocalGrant> {
        let mut made = self.made();
        if made.get(resource, &grant.name).is_some_and(|known| known.token > grant.token) {
            return Some(grant);
        }
        made.insert(resource, grant)
    }

    /// Notes that a grant may lie under another lease than the known one, or come to. The
    /// next renewal moves it, as one from an earlier term.
    pub(crate) fn doubt(&self, resource: &ResourceId, name: &GrantName, token: Revision) {
        let mut made = self.made();
        if let Some(grant) = made.get_mut(resource, name).filter(|grant| grant.token == token) {
            grant.lease.origin.term = u64::MAX;
        }
    }

    /// Forgets a grant with a smaller token: it has ended without this process.
    pub(crate) fn remove_older(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        token: Revision,
    ) -> Option<LocalGrant> {
        self.made().remove_if(resource, name, |grant| grant.token < token)
    }

    /// Forgets the grant with this token.
    pub(crate) fn remove(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        token: Revision,
    ) -> Option<LocalGrant> {
        self.made().remove_if(resource, name, |grant| grant.token == token)
    }

    /// What this process knows of a grant that was read from etcd with this token and under
    /// this lease. If it knows an earlier grant instead, or the same one under another
    /// lease, that has ended without this process: it is forgotten, and returned second.
    pub(crate) fn found(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        token: Revision,
        lease: i64,
    ) -> (Option<LocalGrant>, Option<LocalGrant>) {
        let mut made = self.made();
        match made.get(resource, name) {
            Some(grant) if grant.token == token && grant.lease.id == lease => {
                (Some(grant.clone()), None)
            }
            Some(grant) if grant.token <= token => {
                (None, made.remove_if(resource, name, |_| true))
            }
            _ => (None, None),
        }
    }

    /// Notes that the lease of a grant was kept alive by a request sent at `sent`.
    pub(crate) fn refreshed(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        lease: i64,
        sent: Instant,
    ) {
        let mut made = self.made();
        let grant = made.get_mut(resource, name);
        if let Some(grant) = grant.filter(|grant| grant.lease.id == lease) {
            grant.lease.refreshed = grant.lease.refreshed.max(sent);
        }
    }

    /// Forgets grants that have expired; their leases have ended with them.
    pub(crate) fn purge(&self, now: Instant) {
        let mut made = self.made();
        made.exclusive.retain(|_, grant| now < grant.ends());
        made.shared.retain(|_, readers| readers.purge(now));
        if made.exclusive.capacity() > 4 * made.exclusive.len() + 1_024 {
            made.exclusive.shrink_to_fit();
        }
        if made.shared.capacity() > 4 * made.shared.len() + 1_024 {
            made.shared.shrink_to_fit();
        }
    }

    /// Reserves one of the `max` shared grants of a resource for a try, until it has ended.
    /// `counted` is how many there were just now, if that was read. Without it, the answer
    /// may be that they must be counted first.
    pub(crate) fn seat<'a>(
        &'a self,
        attempt: &'a Attempt,
        max: usize,
        counted: Option<Count>,
    ) -> Result<Seat<'a>, Uncounted> {
        let mut made = self.made();
        let readers = made.shared.entry(attempt.resource.clone()).or_default();
        let reserved = readers.reserve(attempt.id, max, counted, Instant::now());
        if reserved.is_err() {
            made.tidy(&attempt.resource);
        }
        reserved.map(|()| Seat { grants: self, attempt })
    }

    /// Whether this process knows of a shared grant of the resource.
    pub(crate) fn has_readers(&self, resource: &ResourceId) -> bool {
        self.made().shared.get(resource).is_some_and(|readers| readers.len() > 0)
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock()
    }
}

impl Made {
    fn get(&self, resource: &ResourceId, name: &GrantName) -> Option<&LocalGrant> {
        match name.mode {
            Mode::Exclusive => self.exclusive.get(resource),
            Mode::Shared => self.shared.get(resource)?.get(&name.lock_id),
        }
    }

    fn get_mut(&mut self, resource: &ResourceId, name: &GrantName) -> Option<&mut LocalGrant> {
        match name.mode {
            Mode::Exclusive => self.exclusive.get_mut(resource),
            Mode::Shared => self.shared.get_mut(resource)?.get_mut(&name.lock_id),
        }
    }

    fn insert(&mut self, resource: &ResourceId, grant: LocalGrant) -> Option<LocalGrant> {
        match grant.name.mode {
            Mode::Exclusive => self.exclusive.insert(resource.clone(), grant),
            Mode::Shared => self.shared.entry(resource.clone()).or_default().insert(grant),
        }
    }

    fn remove_if(
        &mut self,
        resource: &ResourceId,
        name: &GrantName,
        which: impl FnOnce(&LocalGrant) -> bool,
    ) -> Option<LocalGrant> {
        if !which(self.get(resource, name)?) {
            return None;
        }
        match name.mode {
            Mode::Exclusive => self.exclusive.remove(resource),
            Mode::Shared => {
                let removed = self.shared.get_mut(resource)?.remove(&name.lock_id);
                self.tidy(resource);
                removed
            }
        }
    }

    /// Forgets a resource without grants, if many are remembered.
    fn tidy(&mut self, resource: &ResourceId) {
        if self.shared.len() > COUNTED_MAX
            && self.shared.get(resource).is_some_and(Readers::is_unused)
        {
            self.shared.remove(resource);
        }
    }
}

/// One of the shared grants that a resource may have, reserved for a try. Given up when
/// dropped, unless the try was granted.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    grants: &'a Grants,
    attempt: &'a Attempt,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut made = self.grants.made();
        if let Some(readers) = made.shared.get_mut(&self.attempt.resource) {
            readers.cancel(self.attempt.id);
            made.tidy(&self.attempt.resource);
        }
    }
}

#[cfg(test)]
mod tests;
