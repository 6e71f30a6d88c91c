//! What a lock store is, as simply as it can be said: a resource has at most
//! one grant and a queue. Pure: the time is an argument, nothing is awaited.
//!
//! It is what the simulation holds every answer against, and it is itself held
//! against the memory, Redis and etcd backends (`tests/support/differential.rs`).

use std::collections::{BTreeMap, VecDeque};

use leasehold::lock::{
    Attempt, AttemptId, BackendError, FencingToken, Grant, LockId, Release, ReleaseOf, Renewal,
    Renewed,
};
use tokio::time::Instant;

/// All resources that are held.
#[derive(Default)]
pub struct Model {
    slots: BTreeMap<String, Slot>,
    last_token: u64,
    /// Grants that went to waiters, to be taken by whoever looks.
    pub handed: Vec<(AttemptId, Grant)>,
    /// Grants that ran out since somebody looked.
    pub expired: Vec<u64>,
}

struct Slot {
    held: Held,
    queue: VecDeque<Attempt>,
}

/// A live grant.
pub struct Held {
    /// Who made it, with all that was asked for.
    by: Attempt,
    /// Its token: they count from 1.
    pub token: u64,
    /// When it ends by itself.
    pub expires: Instant,
    /// Whether a replay has claimed it, so that no attempt may undo it.
    claimed: bool,
}

impl Held {
    /// Its name.
    pub fn lock_id(&self) -> &LockId {
        &self.by.lock_id
    }

    fn grant(&self, asked: &Attempt, since: Instant, created: bool) -> Grant {
        Grant {
            lock_id: self.by.lock_id.clone(),
            token: FencingToken::new(self.token),
            ttl: asked.ttl.duration(),
            since,
            created,
        }
    }
}

impl Model {
    /// Acquires what is free.
    pub fn try_lock(&mut self, asked: &Attempt, now: Instant) -> Result<Grant, BackendError> {
        self.pass(now);
        let Some(slot) = self.slots.get_mut(asked.resource.as_str()) else {
            return Ok(self.grant(asked.clone(), VecDeque::new(), now));
        };
        let held = &mut slot.held;
        if asked.request_id.is_none() || held.by.request_id != asked.request_id {
            return Err(BackendError::Locked { holder: held.by.holder.clone() });
        }
        if asked.lock_id_given && asked.lock_id != held.by.lock_id {
            return Err(BackendError::ReplayMismatch { field: "lock_id" });
        }
        held.claimed = true;
        held.expires = now + asked.ttl.duration();
        Ok(held.grant(asked, now, false))
    }

    /// Acquires what is free, or waits for what is held (`None`).
    pub fn enter(
        &mut self,
        asked: &Attempt,
        now: Instant,
    ) -> Result<Option<Grant>, BackendError> {
        match self.try_lock(asked, now) {
            Err(BackendError::Locked { .. }) => {
                if let Some(slot) = self.slots.get_mut(asked.resource.as_str()) {
                    slot.queue.push_back(asked.clone());
                }
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Leaves a queue. Whether it was in one.
    pub fn leave(&mut self, asked: &Attempt) -> bool {
        let Some(slot) = self.slots.get_mut(asked.resource.as_str()) else { return false };
        let before = slot.queue.len();
        slot.queue.retain(|waiting| waiting.id != asked.id);
        slot.queue.len() < before
    }

    /// Starts a TTL again.
    pub fn renew(&mut self, asked: &Renewal, now: Instant) -> Result<Renewed, BackendError> {
        self.pass(now);
        match self.slots.get_mut(asked.resource.as_str()) {
            Some(Slot { held, .. }) if held.by.lock_id == asked.lock_id => {
                held.expires = now + asked.ttl.duration();
                Ok(Renewed { ttl: asked.ttl.duration(), since: now })
            }
            other => Err(BackendError::NotHeld { held: other.is_some() }),
        }
    }

    /// Ends a grant and hands over. Returns the token of what ended.
    pub fn unlock(&mut self, asked: &Release, now: Instant) -> Result<u64, BackendError> {
        self.pass(now);
        let Some(slot) = self.slots.get(asked.resource.as_str()) else {
            return Err(BackendError::NotHeld { held: false });
        };
        let held = &slot.held;
        let meant = match &asked.of {
            ReleaseOf::Owner(lock_id) => held.by.lock_id == *lock_id,
            ReleaseOf::Anyone => true,
            ReleaseOf::Attempt(attempt) => held.by.id == attempt.id && !held.claimed,
        };
        if !meant {
            return Err(BackendError::NotHeld { held: true });
        }
        let token = held.token;
        self.hand_over(asked.resource.as_str(), now);
        Ok(token)
    }

    /// Ends what has run out by `now`, the earliest first.
    pub fn pass(&mut self, now: Instant) {
        while let Some((resource, token)) = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.held.expires <= now)
            .min_by_key(|(_, slot)| (slot.held.expires, slot.held.token))
            .map(|(resource, slot)| (resource.clone(), slot.held.token))
        {
            self.expired.push(token);
            self.hand_over(&resource, now);
        }
    }

    /// The live grant of a resource.
    pub fn held(&self, resource: &str) -> Option<&Held> {
        self.slots.get(resource).map(|slot| &slot.held)
    }

    /// The tokens of all live grants.
    pub fn live(&self) -> Vec<u64> {
        self.slots.values().map(|slot| slot.held.token).collect()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.slots.values().map(|slot| slot.queue.len()).sum()
    }

    /// The token of the newest grant.
    pub fn last_token(&self) -> u64 {
        self.last_token
    }

    /// When the next grant runs out.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.slots.values().map(|slot| slot.held.expires).min()
    }

    fn grant(&mut self, by: Attempt, queue: VecDeque<Attempt>, now: Instant) -> Grant {
        self.last_token += 1;
        let expires = now + by.ttl.duration();
        let held = Held { by, token: self.last_token, expires, claimed: false };
        let grant = held.grant(&held.by, now, true);
        let resource = held.by.resource.as_str().to_owned();
        self.slots.insert(resource, Slot { held, queue });
        grant
    }

    fn hand_over(&mut self, resource: &str, now: Instant) {
        let Some(Slot { mut queue, .. }) = self.slots.remove(resource) else { return };
        if let Some(next) = queue.pop_front() {
            let id = next.id;
            let grant = self.grant(next, queue, now);
            self.handed.push((id, grant));
        }
    }
}
