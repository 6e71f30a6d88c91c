//! The state that the calls and the background tasks of a backend share.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use ::redis::Cmd;
use leasehold_lock::{
    self as lock, Attempt, BackendError, FencingToken, Grant, GrantId, LockId, Mode,
    ResourceId, Settings, WaiterBudget, WaiterSlot,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

#[cfg(doc)]
use super::entry;
use super::{
    library::Verb,
    reply::Reply,
    router::{Answer, Router},
    waiters::Waiters,
};

/// How soon the first waiter of a resource looks at it: a client without leasehold may
/// hold it.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(1);

/// The shared state of calls and tasks.
pub(super) struct Core {
    pub(super) router: Router,
    pub(super) waiters: Arc<Waiters>,
    pub(super) budget: WaiterBudget,
    pub(super) settings: Settings,
    /// Places of waits that an outage ended. They are removed when it is over. They still
    /// count as waiters, which limits their number.
    pub(super) left: Mutex<VecDeque<(Arc<Attempt>, WaiterSlot)>>,
    /// How many waiters have entered again at the end since that was logged.
    pub(super) places_lost: AtomicU64,
    /// When a full queue was last searched for dead waiters.
    pub(super) searched: Mutex<HashMap<ResourceId, Instant>>,
}

impl Core {
    pub(super) fn new(router: Router, waiters: Arc<Waiters>, settings: Settings) -> Self {
        Self {
            router,
            budget: WaiterBudget::new(settings.waiters_max),
            waiters,
            settings,
            left: Mutex::default(),
            places_lost: AtomicU64::new(0),
            searched: Mutex::default(),
        }
    }

    /// Adds the first arguments of every verb that acquires. `rest` is [`entry::rest`].
    pub(super) fn acquire_arguments(&self, request: &mut Cmd, attempt: &Attempt, rest: &str) {
        request.arg(attempt.lock_id.as_str()).arg(attempt.ttl.as_ms()).arg(rest);
        request.arg(self.caller());
    }

    /// Calls a verb that acquires.
    pub(super) async fn acquire(
        &self,
        verb: Verb,
        attempt: &Attempt,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<Answer, BackendError> {
        if attempt.mode == Mode::Shared {
            self.router.expect_readers(&attempt.resource);
        }
        self.router.run(verb, &attempt.resource, arguments, until).await
    }

    /// What the verbs know of their caller: see `queue.how`.
    pub(super) fn caller(&self) -> String {
        let letter = char::from(self.router.unheard().letter());
        let process = self.waiters.process();
        format!("{process}{letter}{}", self.settings.holders_per_resource_max)
    }

    pub(super) fn conclude(
        &self,
        attempt: &Attempt,
        reply: Reply,
        since: lock::Instant,
    ) -> Result<Grant, BackendError> {
        let grant =
            |token: FencingToken, lock_id: Option<LockId>, found: Option<GrantId>| Grant {
                id: Some(found.unwrap_or_else(|| attempt.id.into())),
                lock_id: lock_id.unwrap_or_else(|| attempt.lock_id.clone()),
                token: Some(token),
                ttl: attempt.ttl.duration(),
                since,
                created: found.is_none(),
            };
        self.handed_over(&attempt.resource, reply.handed());
        match reply {
            Reply::Made { token, lock_id, .. } => Ok(grant(token, lock_id, None)),
            Reply::Found { token, lock_id, id, .. } => {
                Ok(grant(token, Some(lock_id), Some(id)))
            }
            Reply::Differs { field } => Err(BackendError::ReplayMismatch { field }),
            Reply::Many => Err(BackendError::TooManyHolders),
            Reply::Taken => Err(BackendError::lock_id_in_use()),
            other => Err(unexpected(&other)),
        }
    }
}

pub(super) fn unexpected(reply: &Reply) -> BackendError {
    debug!(?reply, "unexpected reply of a function");
    BackendError::Unknown("the server gave an answer that this function does not have".into())
}

/// The error of an acquisition that the server refused for want of memory.
pub(super) fn out_of_memory() -> BackendError {
    BackendError::Unavailable(
        "Redis answered OOM: it has no memory for another grant or place (maxmemory)".into(),
    )
}
