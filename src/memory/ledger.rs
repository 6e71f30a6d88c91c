//! The tokens of all grants, and the order in which the grants end.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_lock::{
    Attempt, BackendError, Clock, FencingToken, Grant, Instant, Mode, ResourceId, Ttl,
    inspect::{EndCause, EndedGrant},
};

use super::{changes::Changes, holders::Held};

/// Makes grants, and orders them by their ends.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Every live grant by the end of its TTL. The token distinguishes grants that end at
    /// the same instant.
    expiries: BTreeMap<(Instant, FencingToken), ResourceId>,
    /// Where changes are recorded: one for each watched store over the table.
    watched: Vec<Arc<Changes>>,
    clock: Clock,
    last_token: Option<FencingToken>,
    pub(super) holders_per_resource_max: usize,
}

impl Ledger {
    pub(super) fn new(clock: Clock, holders_per_resource_max: usize) -> Self {
        Self {
            expiries: BTreeMap::new(),
            watched: Vec::new(),
            clock,
            last_token: None,
            holders_per_resource_max,
        }
    }

    pub(super) fn unix_ms(&self) -> u64 {
        self.clock.unix_us() / 1000
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first_key_value().map(|((at, _), _)| *at)
    }

    /// A grant whose TTL is over at `now`.
    pub(super) fn expired(&self, now: Instant) -> Option<(ResourceId, FencingToken)> {
        let ((expires, token), resource) = self.expiries.first_key_value()?;
        (*expires <= now).then(|| (resource.clone(), *token))
    }

    /// Makes the grant that the attempt asks for. It takes effect when it is entered.
    pub(super) fn make(
        &mut self,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<Held, BackendError> {
        let token = self.next_token()?;
        Ok(Held {
            lock_id: attempt.lock_id.clone(),
            token,
            expires: now + attempt.ttl.duration(),
            attempt: attempt.id,
            claimed: None,
            request_id: attempt.request_id.clone(),
            published: attempt.published,
            holder: attempt.holder.clone(),
        })
    }

    /// Enters a new grant.
    pub(super) fn enter(&mut self, held: &Held, resource: &ResourceId) {
        self.schedule(held, resource);
        self.watched.iter().for_each(|changes| changes.note(resource, None));
    }

    /// Removes a grant that has ended.
    pub(super) fn remove(&mut self, held: &Held, mode: Mode, cause: EndCause) {
        let Some(resource) = self.unschedule(held) else { return };
        for changes in &self.watched {
            changes.note(&resource, Some(EndedGrant { grant: held.view(mode), cause }));
        }
    }

    /// From now on, records which resources change.
    pub(super) fn watch(&mut self, changes: Arc<Changes>) {
        self.watched.push(changes);
    }

    /// Undoes [`Ledger::watch`].
    pub(super) fn unwatch(&mut self, changes: &Arc<Changes>) {
        self.watched.retain(|watched| !Arc::ptr_eq(watched, changes));
    }

    #[cfg(test)]
    pub(super) fn watchers(&self) -> usize {
        self.watched.len()
    }

    fn schedule(&mut self, held: &Held, resource: &ResourceId) {
        self.expiries.insert((held.expires, held.token), resource.clone());
    }

    fn unschedule(&mut self, held: &Held) -> Option<ResourceId> {
        self.expiries.remove(&(held.expires, held.token))
    }

    /// Starts the TTL of a grant again.
    pub(super) fn restart(
        &mut self,
        held: &mut Held,
        resource: &ResourceId,
        ttl: Ttl,
        now: Instant,
    ) {
        self.unschedule(held);
        held.expires = now + ttl.duration();
        self.schedule(held, resource);
    }

    /// Returns the grant of a repeated request, which has this mode. From then on no
    /// attempt's clean-up may end it.
    pub(super) fn replay(
        &mut self,
        held: &mut Held,
        mode: Mode,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<Grant, BackendError> {
        if attempt.lock_id_given && attempt.lock_id != held.lock_id {
            return Err(BackendError::ReplayMismatch { field: "lock_id" });
        }
        if attempt.mode != mode {
            return Err(BackendError::ReplayMismatch { field: "mode" });
        }
        held.claimed = Some(attempt.id);
        self.restart(held, &attempt.resource, attempt.ttl, now);
        Ok(held.as_grant(attempt.ttl, now, false))
    }

    /// Greater than the previous token. Tokens start from the clock, so that they rise across
    /// a restart of the process.
    fn next_token(&mut self) -> Result<FencingToken, BackendError> {
        let from_clock = FencingToken::new(self.clock.unix_us());
        let after_last = match self.last_token {
            None => from_clock.or(FencingToken::new(1)),
            Some(last) => last.next().map(|next| from_clock.map_or(next, |now| now.max(next))),
        };
        let token = after_last
            .ok_or_else(|| BackendError::Unavailable("there are no greater tokens".into()))?;
        self.last_token = Some(token);
        Ok(token)
    }
}
