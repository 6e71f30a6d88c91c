//! Who waits in this process, and when to look at what they wait for.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use super::scripts::LOOK_MAX;
use crate::lock::{Attempt, ResourceId};

/// On which every process hears of grants that end soon.
pub(super) const SHORT_CHANNEL: &str = "\x01n";
/// How many resources may be looked at besides those waited for here.
const GUARDED_MAX: usize = 10_000;
/// Spread of looks, so that processes do not look at once.
const JITTER_MS: u128 = 40;

/// The waiters of one backend in this process.
pub(super) struct Waiters {
    /// Names this backend in queues, 32 hexadecimal digits.
    process: String,
    inner: Mutex<Inner>,
    /// Told when the first look has moved forward.
    sooner: Notify,
    /// Told when somebody begins to wait.
    occupied: Notify,
}

#[derive(Default)]
struct Inner {
    /// By attempt, in the form that messages name it.
    seats: HashMap<String, (ResourceId, Arc<Notify>)>,
    resources: HashMap<ResourceId, Watched>,
    due: BTreeSet<(Instant, ResourceId)>,
}

#[derive(Default)]
struct Watched {
    waiting: usize,
    look_at: Option<Instant>,
}

/// A place from which one attempt waits; left by dropping it.
pub(super) struct Seat {
    waiters: Arc<Waiters>,
    attempt: String,
    resource: ResourceId,
    called: Arc<Notify>,
    /// Whether nobody else in this process waits for the same resource.
    pub(super) first: bool,
}

impl Waiters {
    /// Nobody waits.
    pub(super) fn new() -> Self {
        Self {
            process: Uuid::new_v4().simple().to_string(),
            inner: Mutex::default(),
            sooner: Notify::new(),
            occupied: Notify::new(),
        }
    }

    /// This backend's name in queues.
    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// The channel on which this backend's waiters are called.
    pub(super) fn channel(&self) -> String {
        format!("{SHORT_CHANNEL}{}", self.process)
    }

    /// Takes a seat for an attempt.
    pub(super) fn sit(self: &Arc<Self>, attempt: &Attempt) -> Seat {
        let called = Arc::new(Notify::new());
        let name = attempt.id.to_string();
        let mut inner = self.inner();
        let place = (attempt.resource.clone(), Arc::clone(&called));
        inner.seats.insert(name.clone(), place);
        let watched = inner.resources.entry(attempt.resource.clone()).or_default();
        watched.waiting += 1;
        let first = watched.waiting == 1;
        if inner.seats.len() == 1 {
            self.occupied.notify_one();
        }
        drop(inner);
        Seat {
            waiters: Arc::clone(self),
            attempt: name,
            resource: attempt.resource.clone(),
            called,
            first,
        }
    }

    /// Calls the attempt of this name, if it still waits here.
    pub(super) fn wake(&self, attempt: &str) {
        if let Some((_, seat)) = self.inner().seats.get(attempt) {
            seat.notify_one();
        }
    }

    /// Calls everybody who waits here for `resource`.
    pub(super) fn wake_all(&self, resource: &ResourceId) {
        for (_, seat) in self.inner().seats.values().filter(|(of, _)| of == resource) {
            seat.notify_one();
        }
    }

    /// Whether anybody waits.
    pub(super) fn any(&self) -> bool {
        !self.inner().seats.is_empty()
    }

    /// How many wait for this resource.
    pub(super) fn waiting(&self, resource: &ResourceId) -> usize {
        self.inner().resources.get(resource).map_or(0, |watched| watched.waiting)
    }

    /// Returns when somebody has begun to wait since the last return.
    pub(super) async fn occupied(&self) {
        self.occupied.notified().await;
    }

    /// Hears that a grant of `resource` ends in `left`.
    pub(super) fn ends_soon(&self, resource: &str, left: Duration) {
        let Ok(resource) = ResourceId::new(resource) else { return };
        if self.waiting(&resource) > 0 {
            self.plan(&resource, left);
        }
    }

    /// Plans a look at `resource` in `left`, unless an earlier one is planned.
    pub(super) fn plan(&self, resource: &ResourceId, left: Duration) {
        let at = Instant::now() + left.min(LOOK_MAX) + jitter();
        let mut guard = self.inner();
        let inner = &mut *guard;
        let full = inner.resources.len() >= inner.seats.len() + GUARDED_MAX;
        if full && !inner.resources.contains_key(resource) {
            return;
        }
        let watched = inner.resources.entry(resource.clone()).or_default();
        if watched.look_at.is_some_and(|planned| planned <= at) {
            return;
        }
        if let Some(planned) = watched.look_at.replace(at) {
            inner.due.remove(&(planned, resource.clone()));
        }
        let sooner = inner.due.first().is_none_or(|(first, _)| at < *first);
        inner.due.insert((at, resource.clone()));
        drop(guard);
        if sooner {
            self.sooner.notify_one();
        }
    }

    /// Waits until looks are due and takes up to `most` of them.
    pub(super) async fn due(&self, most: usize) -> Vec<ResourceId> {
        loop {
            let next = self.inner().due.first().map(|(at, _)| *at);
            match next {
                Some(at) if at <= Instant::now() => return self.take_due(most),
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.sooner.notified() => {}
                    }
                }
                None => self.sooner.notified().await,
            }
        }
    }

    fn take_due(&self, most: usize) -> Vec<ResourceId> {
        let now = Instant::now();
        let mut guard = self.inner();
        let inner = &mut *guard;
        let mut taken = Vec::new();
        while taken.len() < most && inner.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, resource)) = inner.due.pop_first() else { break };
            if let Some(watched) = inner.resources.get_mut(&resource) {
                watched.look_at = None;
                if watched.waiting == 0 {
                    inner.resources.remove(&resource);
                }
            }
            taken.push(resource);
        }
        taken
    }

    fn leave(&self, attempt: &str, resource: &ResourceId) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.seats.remove(attempt);
        if let Some(watched) = inner.resources.get_mut(resource) {
            watched.waiting = watched.waiting.saturating_sub(1);
            if watched.waiting == 0
                && let Some(watched) = inner.resources.remove(resource)
                && let Some(at) = watched.look_at
            {
                inner.due.remove(&(at, resource.clone()));
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Returns when this attempt has been called.
    pub(super) async fn called(&self) {
        self.called.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiters.leave(&self.attempt, &self.resource);
    }
}

fn jitter() -> Duration {
    let ms = 2 + Uuid::new_v4().as_u128() % JITTER_MS;
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}
