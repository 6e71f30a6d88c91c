//! This process's own grants, and the ends of their leases.
//!
//! This is only a cache. A grant that is not found here is read from etcd, so that any process
//! can renew or unlock what another one granted. Whichever process ends a grant or moves it to
//! another lease disposes of the lease that the grant had. So a lease of a known grant is given
//! back if this process ended the grant, and revoked if another process did.

use std::{collections::HashMap, sync::Arc};

use leasehold_lock::{Attempt, Instant, LockId, Mode, ResourceId};
use parking_lot::Mutex;

use crate::{
    grants::{
        contention::Contention,
        find::{By, Held},
        local_grant::LocalGrant,
        readers::{Count, Readers, Uncounted},
    },
    keys::GrantName,
    lease::leases::Leases,
    revision::Revision,
};

/// How many resources are remembered at once only for their number of shared grants.
const COUNTED_MAX: usize = 16_384;

/// The grants that this process made or moved and that are not known to have ended.
pub(crate) struct Grants {
    pub(crate) leases: Arc<Leases>,
    /// How the resources were seen, of which others may have grants.
    pub(crate) contention: Contention,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    exclusive: HashMap<ResourceId, LocalGrant>,
    shared: HashMap<ResourceId, Readers>,
}

impl Grants {
    pub(crate) fn new(leases: Arc<Leases>) -> Self {
        Self { leases, contention: Contention::default(), made: Mutex::default() }
    }

    /// The live grant of this lock ID.
    pub(crate) fn named(&self, resource: &ResourceId, lock_id: &LockId) -> Option<LocalGrant> {
        let made = self.made.lock();
        let exclusive =
            made.exclusive.get(resource).filter(|grant| grant.name.lock_id == *lock_id);
        let shared = made.shared.get(resource).and_then(|readers| readers.get(lock_id));
        // The older one has ended without this process.
        let known = exclusive.into_iter().chain(shared).max_by_key(|grant| grant.token);
        known.filter(|grant| Instant::now() < grant.ends()).cloned()
    }

    /// The live grant that is looked for.
    pub(crate) fn known(&self, resource: &ResourceId, by: By<'_>) -> Option<LocalGrant> {
        let (known, attempt) = match by {
            By::LockId(lock_id) => return self.named(resource, lock_id),
            By::Token(lock_id, token) => {
                return self.named(resource, lock_id).filter(|grant| grant.token == token);
            }
            By::Claim(lock_id, attempt) => (self.named(resource, lock_id), attempt),
            By::Attempt(attempt, name) => {
                let known = self.made.lock().get(resource, name).cloned();
                (known.filter(|grant| Instant::now() < grant.ends()), attempt)
            }
            By::Id(_) => return None,
        };
        known.filter(|grant| grant.attempt == Some(attempt))
    }

    /// Remembers a new grant.
    pub(crate) fn insert(&self, resource: &ResourceId, grant: LocalGrant) {
        self.contention.saw(resource, Some(grant.name.mode));
        self.moved(resource, 0, grant);
    }

    /// Remembers a grant that this process wrote under one of its leases, and that lay under
    /// this one before; 0 for none. `false` if it is known to have ended or moved on since; its
    /// lease is of no more use then.
    pub(crate) fn moved(&self, resource: &ResourceId, from: i64, grant: LocalGrant) -> bool {
        let mut made = self.made.lock();
        let known = made.get(resource, &grant.name);
        if known
            .is_some_and(|known| (known.token, known.written) > (grant.token, grant.written))
        {
            drop(made);
            self.leases.revoke(from);
            self.leases.revoke(grant.lease.id);
            return false;
        }
        let known = made.insert(resource, grant);
        drop(made);
        self.free(from, known);
        true
    }

    /// Records that this process has deleted the key of a grant, which lay under this
    /// lease.
    pub(crate) fn deleted(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        token: Revision,
        lease: i64,
    ) {
        let mut made = self.made.lock();
        let older = made.remove_if(resource, name, |grant| grant.token < token);
        let known = made.remove_if(resource, name, |grant| grant.token == token);
        let has_readers = made.shared.get(resource).is_some_and(|readers| readers.len() > 0);
        drop(made);
        if name.mode == Mode::Exclusive || !has_readers {
            self.contention.saw(resource, None);
        }
        self.revoke(older);
        self.free(lease, known);
    }

    /// Forgets a grant whose key, as it was `written`, somebody else has deleted or written
    /// again. Its lease is not reused, because they may be about to revoke it. If this process
    /// has moved the grant since, it may be alive and stays. The lease does not show that: it
    /// may be the same one again, which was kept meanwhile.
    pub(crate) fn forget(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        (token, written): (Revision, Revision),
    ) {
        let is_it = |grant: &LocalGrant| grant.token == token && grant.written <= written;
        let known = self.made.lock().remove_if(resource, name, is_it);
        self.revoke(known);
    }

    /// Forgets a grant that may lie under another lease than the known one, or come to. The
    /// next renewal moves it, as one that another process made.
    pub(crate) fn doubt(&self, resource: &ResourceId, name: &GrantName, token: Revision) {
        self.made.lock().remove_if(resource, name, |grant| grant.token == token);
    }

    /// What this process knows of a grant that was read from etcd. If it knows an earlier grant
    /// instead, or the same one under another lease, that has ended without this process.
    pub(crate) fn found(&self, held: &Held<'_>) -> Option<LocalGrant> {
        let (resource, name) = (held.resource, &held.name);
        let written = Revision::from_etcd(held.pair.mod_revision());
        let mut made = self.made.lock();
        let known = made.get(resource, name)?;
        if known.token == held.token && known.lease.id == held.lease() {
            return Some(known.clone());
        }
        // For the same grant, the local state may be newer than the read.
        let is_older =
            |known: &LocalGrant| (known.token, known.written) < (held.token, written);
        let ended = made.remove_if(resource, name, is_older);
        drop(made);
        self.revoke(ended);
        None
    }

    /// Records that the lease of a grant was kept alive by a request sent at `sent`.
    pub(crate) fn refreshed(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        lease: i64,
        sent: Instant,
    ) {
        let mut made = self.made.lock();
        let grant = made.get_mut(resource, name);
        if let Some(grant) = grant.filter(|grant| grant.lease.id == lease) {
            grant.lease.refreshed = grant.lease.refreshed.max(sent);
        }
    }

    /// Forgets grants that have expired; their leases have ended with them.
    pub(crate) fn purge(&self, now: Instant) {
        let mut made = self.made.lock();
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
        let mut made = self.made.lock();
        let readers = made.shared.entry(attempt.resource.clone()).or_default();
        let reserved = readers.reserve(attempt.id, max, counted, Instant::now());
        if reserved.is_err() {
            made.tidy(&attempt.resource);
        }
        reserved.map(|()| Seat { grants: self, attempt })
    }

    /// Disposes of the lease that a grant's key lay under until this process deleted or moved
    /// it. `known` is the grant as this process knew it. If its lease is that one, the lease is
    /// kept for reuse. Otherwise both are revoked: the process that made the grant does not reuse
    /// its lease, because it would have to delete or move the key first.
    fn free(&self, lease: i64, known: Option<LocalGrant>) {
        match known {
            Some(grant) if grant.lease.id == lease => self.leases.give(grant.lease),
            known => {
                self.leases.revoke(lease);
                self.revoke(known);
            }
        }
    }

    fn revoke(&self, ended: Option<LocalGrant>) {
        if let Some(ended) = ended {
            self.leases.revoke(ended.lease.id);
        }
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
pub(crate) struct Seat<'a> {
    grants: &'a Grants,
    attempt: &'a Attempt,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut made = self.grants.made.lock();
        if let Some(readers) = made.shared.get_mut(&self.attempt.resource) {
            readers.cancel(self.attempt.id);
            made.tidy(&self.attempt.resource);
        }
    }
}

#[cfg(test)]
mod tests;
