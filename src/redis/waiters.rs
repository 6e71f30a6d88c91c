//! The waiters of this process, and when to look at their resources.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_lock::{self as lock, Attempt, FencingToken, ResourceId};
use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, time::Instant};
use uuid::Uuid;

use super::{entry, notice::Notice, times::TIMES};

/// How many resources without a waiter in this process may be looked at.
const GUARDED_MAX: usize = 10_000;
/// How many calls for unknown attempts are kept. If there are more, their resources are passed
/// on when the hand-overs lapse.
const STRAYS_MAX: usize = 10_000;
/// Random delay of looks, so that processes do not look at the same time.
const JITTER_MS: u128 = 40;
/// The average time between two regular looks is at least this. With more than 4,000
/// resources, each is looked at less often than each `look_max`.
const LOOK_SPACING: Duration = Duration::from_micros(500);

/// The waiters of one backend in this process.
pub(crate) struct Waiters {
    /// The name of this backend in queues: 32 hexadecimal digits.
    process: String,
    inner: Mutex<Inner>,
    /// Notified when the next look is due earlier.
    sooner: Notify,
    /// Notified when an unknown attempt was called.
    strayed: Notify,
}

#[derive(Default)]
struct Inner {
    /// By attempt, in the form of notices.
    registered: HashMap<String, Arc<RegisteredWaiter>>,
    resources: HashMap<ResourceId, Watched>,
    due: BTreeSet<(Instant, ResourceId)>,
    strays: VecDeque<Stray>,
    /// How many waiters have been registered so far.
    registrations: u64,
}

#[derive(Default)]
struct Watched {
    /// In the order in which they came.
    line: BTreeMap<u64, Arc<RegisteredWaiter>>,
    look_at: Option<Instant>,
    /// Whether the planned look stays planned though nobody waits here.
    is_guarded: bool,
}

struct RegisteredWaiter {
    number: u64,
    resource: ResourceId,
    attempt: String,
    place: String,
    /// Whether its place is known to be in the queue.
    is_queued: AtomicBool,
    /// The most important summons that it has not taken yet.
    next: Mutex<Option<Summons>>,
    summoned: Notify,
}

impl RegisteredWaiter {
    fn summon(&self, summons: Summons) {
        {
            let mut next = self.next.lock();
            *next = next.take().max(Some(summons));
        }
        self.summoned.notify_one();
    }
}

/// A grant that a release of this process made for a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StraightGrant {
    pub(super) token: FencingToken,
    /// When the release was sent.
    pub(super) since: lock::Instant,
}

/// A registered waiter, until this is dropped.
pub(super) struct WaiterHandle {
    waiters: Arc<Waiters>,
    waiter: Arc<RegisteredWaiter>,
    /// Whether nobody else in this process waits for the same resource.
    pub(super) first: bool,
}

/// Why a waiter is woken, the least important reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Summons {
    /// Its place may be lost.
    EnterAgain,
    /// The resource was handed over to it.
    Confirm,
    /// It has a grant.
    Granted(StraightGrant),
}

/// A call for an attempt that does not wait here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) resource: ResourceId,
    pub(super) attempt: String,
}

/// The waiter whose place a look checks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Oldest {
    pub(super) attempt: String,
    pub(super) place: String,
}

impl Waiters {
    /// Without waiters.
    pub(crate) fn new() -> Self {
        Self {
            process: Uuid::new_v4().simple().to_string(),
            inner: Mutex::default(),
            sooner: Notify::new(),
            strayed: Notify::new(),
        }
    }

    /// This backend's name in queues.
    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// Registers `attempt` as waiting.
    pub(super) fn register(self: &Arc<Self>, attempt: &Attempt) -> WaiterHandle {
        let mut inner = self.inner();
        inner.registrations += 1;
        let waiter = Arc::new(RegisteredWaiter {
            number: inner.registrations,
            resource: attempt.resource.clone(),
            attempt: attempt.id.to_string(),
            place: entry::place(&self.process, attempt),
            is_queued: AtomicBool::new(false),
            next: Mutex::default(),
            summoned: Notify::new(),
        });
        inner.registered.insert(waiter.attempt.clone(), Arc::clone(&waiter));
        let line = &mut inner.resources.entry(attempt.resource.clone()).or_default().line;
        line.insert(waiter.number, Arc::clone(&waiter));
        let first = line.len() == 1;
        drop(inner);
        WaiterHandle { waiters: Arc::clone(self), waiter, first }
    }

    /// Handles a notice.
    pub(super) fn handle(&self, notice: &Notice<'_>) {
        match *notice {
            Notice::Call { attempt, resource } => self.call(attempt, resource),
            Notice::Skip { resource } => {
                if let Ok(resource) = ResourceId::new(resource) {
                    self.enter_again(&resource);
                }
            }
            Notice::Look { resource } => {
                if let Ok(resource) = ResourceId::new(resource)
                    && self.waiting(&resource) > 0
                {
                    self.plan(&resource, Duration::ZERO);
                }
            }
        }
    }

    /// Wakes the attempt with this name. If it does not wait here, keeps the call as a stray,
    /// so that the hand-over is withdrawn and the next waiter need not wait until it lapses.
    pub(super) fn call(&self, attempt: &str, resource: &str) {
        let mut inner = self.inner();
        if let Some(waiter) = inner.registered.get(attempt) {
            waiter.summon(Summons::Confirm);
        } else if inner.strays.len() < STRAYS_MAX
            && let Ok(resource) = ResourceId::new(resource)
        {
            inner.strays.push_back(Stray { resource, attempt: attempt.to_owned() });
            drop(inner);
            self.strayed.notify_one();
        }
    }

    /// Wakes the attempt with this name, if it waits here, because it may have a grant.
    pub(super) fn check(&self, attempt: &str) {
        if let Some(waiter) = self.inner().registered.get(attempt) {
            waiter.summon(Summons::Confirm);
        }
    }

    /// Gives an attempt its grant. If it does not wait here any more, its end undoes the grant: that
    /// was sent after the release, or it will be.
    pub(super) fn grant(&self, attempt: &str, granted: StraightGrant) {
        if let Some(waiter) = self.inner().registered.get(attempt) {
            waiter.summon(Summons::Granted(granted));
        }
    }

    /// Makes all waiters of `resource` in this process enter the queue again.
    pub(super) fn enter_again(&self, resource: &ResourceId) {
        let inner = self.inner();
        for waiter in inner.resources.get(resource).into_iter().flat_map(|w| w.line.values()) {
            waiter.is_queued.store(false, Ordering::Relaxed);
            waiter.summon(Summons::EnterAgain);
        }
    }

    /// Takes up to `most` strays.
    pub(super) fn strays(&self, most: usize) -> Vec<Stray> {
        let strays = &mut self.inner().strays;
        let most = most.min(strays.len());
        strays.drain(..most).collect()
    }

    /// Waits until an unknown attempt was called since the last return.
    pub(super) async fn strayed(&self) {
        self.strayed.notified().await;
    }

    /// Whether anybody waits.
    #[cfg(any(fuzzing, test))]
    pub(crate) fn any(&self) -> bool {
        !self.inner().registered.is_empty()
    }

    /// How many wait for this resource.
    pub(super) fn waiting(&self, resource: &ResourceId) -> usize {
        self.inner().resources.get(resource).map_or(0, |watched| watched.line.len())
    }

    /// The first waiter of `resource`, if it is known to be queued.
    pub(super) fn oldest(&self, resource: &ResourceId) -> Option<Oldest> {
        let inner = self.inner();
        let (_, waiter) = inner.resources.get(resource)?.line.first_key_value()?;
        waiter
            .is_queued
            .load(Ordering::Relaxed)
            .then(|| Oldest { attempt: waiter.attempt.clone(), place: waiter.place.clone() })
    }

    /// Whether this attempt waits here and is known to be queued.
    pub(super) fn is_queued(&self, attempt: &str) -> bool {
        let inner = self.inner();
        inner
            .registered
            .get(attempt)
            .is_some_and(|waiter| waiter.is_queued.load(Ordering::Relaxed))
    }

    /// Plans a look at `resource` in `left`, unless an earlier look is planned. It is
    /// cancelled when nobody waits here any more.
    pub(super) fn plan(&self, resource: &ResourceId, left: Duration) {
        self.plan_look(resource, left, false);
    }

    /// Plans a look like [`plan`](Self::plan), but it stays planned when nobody waits here,
    /// because the waiters of other processes may depend on it.
    pub(super) fn guard(&self, resource: &ResourceId, left: Duration) {
        self.plan_look(resource, left, true);
    }

    /// Records that a hand-over was confirmed here, so that no look for its lapse is
    /// needed.
    pub(super) fn confirmed(&self, resource: &ResourceId) {
        if let Some(watched) = self.inner().resources.get_mut(resource) {
            watched.is_guarded = false;
        }
    }

    fn plan_look(&self, resource: &ResourceId, left: Duration, is_guard: bool) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        let watched = u32::try_from(inner.resources.len()).unwrap_or(u32::MAX);
        let at =
            Instant::now() + left.min(TIMES.look_max.max(LOOK_SPACING * watched)) + jitter();
        let full = inner.resources.len() >= inner.registered.len() + GUARDED_MAX;
        if full && !inner.resources.contains_key(resource) {
            return;
        }
        let watched = inner.resources.entry(resource.clone()).or_default();
        watched.is_guarded |= is_guard;
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

    /// Waits until looks are due, and takes up to `most` of them.
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
                watched.is_guarded = false;
                if watched.line.is_empty() {
                    inner.resources.remove(&resource);
                }
            }
            taken.push(resource);
        }
        taken
    }

    fn leave(&self, waiter: &RegisteredWaiter) {
        let mut guard = self.inner();
        let inner = &mut *guard;
        inner.registered.remove(&waiter.attempt);
        if let Some(watched) = inner.resources.get_mut(&waiter.resource) {
            watched.line.remove(&waiter.number);
            if watched.line.is_empty()
                && !watched.is_guarded
                && let Some(watched) = inner.resources.remove(&waiter.resource)
                && let Some(at) = watched.look_at
            {
                inner.due.remove(&(at, waiter.resource.clone()));
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl WaiterHandle {
    /// Records that its place is in the queue.
    pub(super) fn note_queued(&self) {
        self.waiter.is_queued.store(true, Ordering::Relaxed);
    }

    /// Returns when this waiter must act.
    pub(super) async fn summoned(&self) -> Summons {
        loop {
            self.waiter.summoned.notified().await;
            if let Some(summons) = self.waiter.next.lock().take() {
                return summons;
            }
        }
    }
}

impl Drop for WaiterHandle {
    fn drop(&mut self) {
        self.waiters.leave(&self.waiter);
    }
}

fn jitter() -> Duration {
    let ms = 2 + Uuid::new_v4().as_u128() % JITTER_MS;
    Duration::from_millis(u64::try_from(ms).unwrap_or_default())
}

#[cfg(test)]
mod tests;
