//! The simplest model of a lock store: a resource has one exclusive grant or any
//! number of shared ones, and one queue. It is pure: the time is an argument,
//! nothing is awaited.
//!
//! The simulation compares every answer with it, and it is itself compared with the
//! memory, Redis and etcd backends ([`Differential`](crate::Differential)).

use std::collections::{BTreeMap, VecDeque};

use leasehold_lock::{
    Attempt, AttemptId, BackendError, FencingToken, Grant, LockId, Mode, Release, ReleaseOf,
    Renewal, Renewed, Violation, inspect::GrantView,
};
use tokio::time::Instant;

/// All resources that are held.
#[derive(Default)]
pub struct Model {
    slots: BTreeMap<String, Slot>,
    last_token: u64,
    /// Answers to waiters whose turn has come; the reader removes them.
    pub handed: Vec<(AttemptId, Result<Grant, BackendError>)>,
    /// Grants that have expired; the reader removes them.
    pub expired: Vec<u64>,
}

struct Slot {
    /// One exclusive grant, or at least one shared grant, in the order of their tokens.
    held: Vec<Held>,
    queue: VecDeque<Attempt>,
}

/// A live grant.
pub struct Held {
    /// The attempt that made it.
    by: Attempt,
    /// Its token: they count from 1.
    pub token: u64,
    /// When it ends by itself.
    pub expires: Instant,
    /// The last replay that claimed it, so that no attempt may undo it.
    claimed: Option<AttemptId>,
}

impl Held {
    /// Its lock ID.
    pub fn lock_id(&self) -> &LockId {
        &self.by.lock_id
    }

    /// The attempt that made it.
    pub fn by(&self) -> &Attempt {
        &self.by
    }

    /// The last attempt that got it.
    pub fn last(&self) -> AttemptId {
        self.claimed.unwrap_or(self.by.id)
    }

    fn grant(&self, asked: &Attempt, since: Instant, created: bool) -> Grant {
        Grant {
            id: Some(self.by.id.into()),
            lock_id: self.by.lock_id.clone(),
            token: FencingToken::new(self.token),
            ttl: asked.ttl.duration(),
            since: leasehold_lock::Instant::now() - since.elapsed(),
            created,
        }
    }
}

impl Slot {
    fn mode(&self) -> Mode {
        self.held[0].by.mode
    }

    /// Whether a shared attempt brings the lock ID of a live shared grant.
    fn has_reader(&self, asked: &Attempt) -> bool {
        let is_shared = (asked.mode, self.mode()) == (Mode::Shared, Mode::Shared);
        is_shared && self.held.iter().any(|held| held.by.lock_id == asked.lock_id)
    }

    /// Returns the grant of a repeated request.
    fn replay(&mut self, asked: &Attempt, now: Instant) -> Option<Result<Grant, BackendError>> {
        let mode = self.mode();
        asked.request_id.as_ref()?;
        let held = self.held.iter_mut().find(|held| held.by.request_id == asked.request_id)?;
        if asked.lock_id_given && asked.lock_id != held.by.lock_id {
            return Some(Err(BackendError::ReplayMismatch { field: "lock_id" }));
        }
        if asked.mode != mode {
            return Some(Err(BackendError::ReplayMismatch { field: "mode" }));
        }
        held.claimed = Some(asked.id);
        held.expires = now + asked.ttl.duration();
        Some(Ok(held.grant(asked, now, false)))
    }
}

impl Model {
    /// Acquires a free resource, or shares one that nobody waits for.
    pub fn try_lock(&mut self, asked: &Attempt, now: Instant) -> Result<Grant, BackendError> {
        self.pass(now);
        let Some(slot) = self.slots.get_mut(asked.resource.as_str()) else {
            return Ok(self.grant(asked.clone(), now));
        };
        if let Some(replayed) = slot.replay(asked, now) {
            return replayed;
        }
        let is_shared = (asked.mode, slot.mode()) == (Mode::Shared, Mode::Shared);
        if is_shared && slot.queue.is_empty() && !slot.has_reader(asked) {
            return Ok(self.grant(asked.clone(), now));
        }
        let by = GrantView {
            holder: slot.held[0].by.holder.clone(),
            ..GrantView::unknown(slot.mode())
        };
        Err(BackendError::Locked { by: Some(by) })
    }

    /// Like [`Model::try_lock`], or waits (`None`).
    pub fn enter(
        &mut self,
        asked: &Attempt,
        now: Instant,
    ) -> Result<Option<Grant>, BackendError> {
        match self.try_lock(asked, now) {
            Err(BackendError::Locked { .. }) => {
                let slot = self.slots.get_mut(asked.resource.as_str()).expect("it is held");
                if slot.has_reader(asked) {
                    return Err(same_lock_id());
                }
                slot.queue.push_back(asked.clone());
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Leaves a queue. Returns whether it was in one.
    pub fn leave(&mut self, asked: &Attempt, now: Instant) -> bool {
        let resource = asked.resource.as_str();
        let Some(slot) = self.slots.get_mut(resource) else { return false };
        let before = slot.queue.len();
        slot.queue.retain(|waiting| waiting.id != asked.id);
        let was_there = slot.queue.len() < before;
        self.hand_over(resource, now);
        was_there
    }

    /// Starts a TTL again.
    pub fn renew(&mut self, asked: &Renewal, now: Instant) -> Result<Renewed, BackendError> {
        self.pass(now);
        let Some(slot) = self.slots.get_mut(asked.resource.as_str()) else {
            return Err(BackendError::NotHeld { held: false });
        };
        let held = slot.held.iter_mut().find(|held| held.by.lock_id == asked.lock_id);
        let held = held.ok_or(BackendError::NotHeld { held: true })?;
        held.expires = now + asked.ttl.duration();
        Ok(Renewed {
            id: Some(held.by.id.into()),
            ttl: asked.ttl.duration(),
            since: leasehold_lock::Instant::now() - now.elapsed(),
        })
    }

    /// Ends a grant, or all, and hands over. Returns the tokens of the ended grants.
    pub fn unlock(&mut self, asked: &Release, now: Instant) -> Result<Vec<u64>, BackendError> {
        self.pass(now);
        let resource = asked.resource.as_str();
        let Some(slot) = self.slots.get_mut(resource) else {
            return Err(BackendError::NotHeld { held: false });
        };
        let is_meant = |held: &mut Held| match &asked.of {
            ReleaseOf::Owner(lock_id) => held.by.lock_id == *lock_id,
            ReleaseOf::Token(lock_id, token) => {
                held.by.lock_id == *lock_id && held.token == token.get()
            }
            ReleaseOf::Claim(lock_id, attempt) => {
                held.by.lock_id == *lock_id && held.last() == *attempt
            }
            ReleaseOf::Anyone => true,
            ReleaseOf::Id(id) => *id == held.by.id.into(),
            ReleaseOf::Attempt(attempt) => held.by.id == attempt.id && held.claimed.is_none(),
        };
        let ended: Vec<_> = slot.held.extract_if(.., is_meant).map(|held| held.token).collect();
        if ended.is_empty() {
            return Err(BackendError::NotHeld { held: true });
        }
        self.hand_over(resource, now);
        Ok(ended)
    }

    /// Ends the grants that have expired by `now`, the earliest first.
    pub fn pass(&mut self, now: Instant) {
        while let Some((expires, token, resource)) = self.ends().min()
            && expires <= now
        {
            let resource = resource.to_owned();
            self.expired.push(token);
            if let Some(slot) = self.slots.get_mut(&resource) {
                slot.held.retain(|held| held.token != token);
            }
            self.hand_over(&resource, now);
        }
    }

    /// The live grants of a resource.
    pub fn held(&self, resource: &str) -> &[Held] {
        self.slots.get(resource).map_or(&[], |slot| &slot.held)
    }

    /// The tokens of all live grants.
    pub fn live(&self) -> Vec<u64> {
        self.slots.values().flat_map(|slot| &slot.held).map(|held| held.token).collect()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.slots.values().map(|slot| slot.queue.len()).sum()
    }

    /// The token of the newest grant.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// When the next grant expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.ends().min().map(|(expires, ..)| expires)
    }

    /// The expiry of each grant, its token and its resource.
    fn ends(&self) -> impl Iterator<Item = (Instant, u64, &str)> {
        let slots = self.slots.iter();
        slots.flat_map(|(resource, slot)| {
            slot.held.iter().map(|held| (held.expires, held.token, resource.as_str()))
        })
    }

    fn grant(&mut self, by: Attempt, now: Instant) -> Grant {
        self.last_token += 1;
        let expires = now + by.ttl.duration();
        let held = Held { by, token: self.last_token, expires, claimed: None };
        let grant = held.grant(&held.by, now, true);
        let resource = held.by.resource.as_str().to_owned();
        let free = || Slot { held: Vec::new(), queue: VecDeque::new() };
        self.slots.entry(resource).or_insert_with(free).held.push(held);
        grant
    }

    /// Grants to the waiters at the head of the queue whose turn has come.
    fn hand_over(&mut self, resource: &str, now: Instant) {
        while let Some(slot) = self.slots.get_mut(resource) {
            let Some(next) = slot.queue.front() else {
                if slot.held.is_empty() {
                    self.slots.remove(resource);
                }
                return;
            };
            let may_share =
                next.mode == Mode::Shared && slot.held.iter().all(|h| h.by.mode == next.mode);
            if !slot.held.is_empty() && !may_share {
                return;
            }
            let Some(next) = slot.queue.pop_front() else { return };
            let id = next.id;
            let replayed = if slot.held.is_empty() { None } else { slot.replay(&next, now) };
            let answer = match replayed {
                Some(replayed) => replayed,
                None if !slot.held.is_empty() && slot.has_reader(&next) => Err(same_lock_id()),
                None => Ok(self.grant(next, now)),
            };
            self.handed.push((id, answer));
        }
    }
}

fn same_lock_id() -> BackendError {
    BackendError::Invalid(Violation::new("lock_id", ""))
}

/// An answer without the text of its problem, which differs between backends, and without the
/// ID and the time of the grant in its way, which the model does not have.
pub fn unworded<T>(answer: Result<T, BackendError>) -> Result<T, BackendError> {
    answer.map_err(|error| match error {
        BackendError::Invalid(Violation { field, .. }) => {
            BackendError::Invalid(Violation::new(field, ""))
        }
        BackendError::Locked { by: Some(GrantView { holder, mode, .. }) } => {
            BackendError::Locked { by: Some(GrantView { holder, ..GrantView::unknown(mode) }) }
        }
        error => error,
    })
}
