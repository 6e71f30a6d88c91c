//! The live grants of one resource.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use leasehold_lock::{
    Attempt, AttemptId, FencingToken, Grant, GrantId, Holder, Instant, LockId, Mode, RequestId,
    Ttl, inspect::GrantView,
};

/// Maps up to this capacity are not shrunk.
const CAPACITY_MIN: usize = 1024;

/// The live grants of a resource: one exclusive grant, or at least one shared grant.
#[derive(Debug)]
pub(super) enum Holders {
    Exclusive(Held),
    /// Boxed to keep an exclusive lock small.
    Shared(Box<Readers>),
}

/// A live grant.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lock_id: LockId,
    /// Contains the time of the grant, because it is made from the wall clock.
    pub(super) token: FencingToken,
    pub(super) expires: Instant,
    /// The attempt that made it, which determines its public ID.
    pub(super) attempt: AttemptId,
    /// The last replay that claimed it. The clean-up of `attempt` must then not end it.
    pub(super) claimed: Option<AttemptId>,
    pub(super) request_id: Option<RequestId>,
    /// Whether inspection returns its lock ID.
    pub(super) published: bool,
    pub(super) holder: Option<Holder>,
}

/// The shared grants of a resource, of which there may be many thousands.
#[derive(Debug, Default)]
pub(super) struct Readers {
    /// In the order in which they were granted.
    by_token: BTreeMap<FencingToken, Held>,
    by_lock_id: HashMap<LockId, FencingToken>,
    by_request_id: HashMap<RequestId, FencingToken>,
}

impl Holders {
    /// The first grant of a resource.
    pub(super) fn new(held: Held, mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Exclusive(held),
            Mode::Shared => {
                let mut readers = Box::<Readers>::default();
                readers.insert(held);
                Self::Shared(readers)
            }
        }
    }

    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::Exclusive(_) => Mode::Exclusive,
            Self::Shared(_) => Mode::Shared,
        }
    }

    /// The grant with this lock ID.
    pub(super) fn with_lock_id(&mut self, lock_id: &LockId) -> Option<&mut Held> {
        match self {
            Self::Exclusive(held) => (held.lock_id == *lock_id).then_some(held),
            Self::Shared(readers) => readers.with_lock_id(lock_id),
        }
    }

    /// The grant with the attempt's request ID, if it has one.
    pub(super) fn replayed_by(&mut self, attempt: &Attempt) -> Option<&mut Held> {
        let request_id = attempt.request_id.as_ref()?;
        match self {
            Self::Exclusive(held) => {
                (held.request_id.as_ref() == Some(request_id)).then_some(held)
            }
            Self::Shared(readers) => readers.with_request_id(request_id),
        }
    }

    /// The grant with this public ID.
    pub(super) fn with_id(&mut self, id: GrantId) -> Option<&mut Held> {
        match self {
            Self::Exclusive(held) => (id == held.attempt.into()).then_some(held),
            Self::Shared(readers) => {
                readers.by_token.values_mut().find(|held| id == held.attempt.into())
            }
        }
    }

    /// All grants, in the order in which they were granted.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        let (exclusive, shared) = match self {
            Self::Exclusive(held) => (Some(held), None),
            Self::Shared(readers) => (None, Some(readers.iter())),
        };
        exclusive.into_iter().chain(shared.into_iter().flatten())
    }

    /// The grant that a refusal shows: the first.
    pub(super) fn shown(&self) -> Option<GrantView> {
        self.iter().next().map(|held| held.view(self.mode()))
    }
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_token.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.by_token.values()
    }

    pub(super) fn has(&self, lock_id: &LockId) -> bool {
        self.by_lock_id.contains_key(lock_id)
    }

    fn with_lock_id(&mut self, lock_id: &LockId) -> Option<&mut Held> {
        self.by_token.get_mut(self.by_lock_id.get(lock_id)?)
    }

    pub(super) fn with_request_id(&mut self, request_id: &RequestId) -> Option<&mut Held> {
        self.by_token.get_mut(self.by_request_id.get(request_id)?)
    }

    /// Adds a grant with a new lock ID and request ID.
    pub(super) fn insert(&mut self, held: Held) {
        self.by_lock_id.insert(held.lock_id.clone(), held.token);
        if let Some(request_id) = &held.request_id {
            self.by_request_id.insert(request_id.clone(), held.token);
        }
        self.by_token.insert(held.token, held);
    }

    pub(super) fn remove(&mut self, token: FencingToken) -> Option<Held> {
        let held = self.by_token.remove(&token)?;
        self.by_lock_id.remove(&held.lock_id);
        shrink(&mut self.by_lock_id);
        if let Some(request_id) = &held.request_id {
            self.by_request_id.remove(request_id);
            shrink(&mut self.by_request_id);
        }
        Some(held)
    }
}

impl Held {
    /// Its public facts.
    pub(super) fn view(&self, mode: Mode) -> GrantView {
        GrantView {
            id: Some(self.attempt.into()),
            holder: self.holder.clone(),
            mode,
            remaining: None,
            since_unix_ms: Some(self.token.get() / 1000),
            foreign: false,
        }
    }

    /// Its lock ID, if its request published that.
    pub(super) fn published(&self) -> Option<LockId> {
        self.published.then(|| self.lock_id.clone())
    }

    pub(super) fn as_grant(&self, ttl: Ttl, since: Instant, created: bool) -> Grant {
        Grant {
            id: Some(self.attempt.into()),
            lock_id: self.lock_id.clone(),
            token: Some(self.token),
            ttl: ttl.duration(),
            since,
            created,
        }
    }
}

/// Frees memory once most of it is unused.
pub(super) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    let (used, capacity) = (map.len(), map.capacity());
    if capacity > CAPACITY_MIN && used < capacity / 8 {
        map.shrink_to((used * 2).max(CAPACITY_MIN));
    }
}
