//! The server that all processes share: a lock store, and the model with which
//! every answer is compared.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use futures_util::{FutureExt as _, future::BoxFuture, task::AtomicWaker};
use leasehold_lock::{
    Attempt, AttemptId, Backend, BackendError, Grant, LockId, Release, ReleaseOf, Renewal,
    Renewed,
};
use tokio::time::Instant;

use leasehold_testing::model::{Held, Model, unworded};

use super::history::{End, History, OpId, What};

type Granting = BoxFuture<'static, Result<Grant, BackendError>>;

/// The shared server. Operations take effect when they are called.
pub struct Server {
    store: Arc<dyn Backend>,
    pub history: History,
    shadow: Mutex<Shadow>,
    waits: Mutex<HashMap<AttemptId, Arc<Wait>>>,
    /// Processes that are known to be gone.
    gone: Mutex<HashSet<u32>>,
    starts: AtomicU32,
}

#[derive(Default)]
struct Shadow {
    model: Model,
    /// Grants to waiters that the model has made and the store has not reported yet.
    handed: HashMap<AttemptId, Result<Grant, BackendError>>,
    /// The store's tokens by the model's, the inverse, and tokens by resource.
    theirs: HashMap<u64, u64>,
    ours: HashMap<u64, u64>,
    of_resource: HashMap<u8, BTreeMap<u64, u64>>,
}

/// A wait at the server, which the server can end at any time.
struct Wait {
    attempt: Attempt,
    process: u32,
    granting: Mutex<Option<Granting>>,
    waker: AtomicWaker,
}

/// The number of a resource, which is named `r` and the number.
fn number(resource: &str) -> u8 {
    resource[1..].parse().unwrap()
}

fn op_of(attempt: &Attempt) -> OpId {
    attempt.holder.as_ref().map_or(0, |holder| holder.as_str().parse().unwrap())
}

impl Server {
    pub fn new(store: Arc<dyn Backend>, history: History) -> Arc<Self> {
        Arc::new(Self {
            store,
            history,
            shadow: Mutex::default(),
            waits: Mutex::default(),
            gone: Mutex::default(),
            starts: AtomicU32::new(0),
        })
    }

    /// How often it was started. Messages from before a start are lost.
    pub fn starts(&self) -> u32 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Restarts with the same data: every connection breaks.
    pub fn restart(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        self.end_waits(|_| true);
    }

    pub fn try_lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let now = Instant::now();
        let got = self.store.try_lock(attempt, now).now_or_never().expect("a store in memory");
        let mut shadow = self.shadow();
        let expected = shadow.model.try_lock(attempt, now);
        self.see(&mut shadow);
        self.compare_grant(&mut shadow, attempt, &got, &expected);
        got
    }

    /// Waits for a grant; ends with `None` if the server ends the wait.
    pub async fn lock(
        self: &Arc<Self>,
        attempt: &Attempt,
        process: u32,
    ) -> Option<Result<Grant, BackendError>> {
        if self.gone.lock().unwrap().contains(&process) {
            return None;
        }
        let (store, asked) = (Arc::clone(&self.store), attempt.clone());
        let mut granting: Granting = async move { store.lock(&asked).await }.boxed();
        let got = futures_util::poll!(&mut granting);
        {
            let mut shadow = self.shadow();
            let expected = shadow.model.enter(attempt, Instant::now());
            self.see(&mut shadow);
            match (got, expected) {
                (Poll::Ready(got), Ok(Some(expected))) => {
                    self.compare_grant(&mut shadow, attempt, &got, &Ok(expected));
                    return Some(got);
                }
                (Poll::Ready(got), Err(expected)) => {
                    self.compare_grant(&mut shadow, attempt, &got, &Err(expected));
                    return Some(got);
                }
                (Poll::Ready(got), Ok(None)) => {
                    self.wrong(format!("{got:?} at once, where it must wait"));
                    return Some(got);
                }
                (Poll::Pending, Ok(None)) => {
                    let resource = number(attempt.resource.as_str());
                    self.history.note(What::Waits { op: op_of(attempt), resource });
                }
                (Poll::Pending, expected) => {
                    self.wrong(format!("a wait where {expected:?} was due"));
                }
            }
        }
        let wait = Arc::new(Wait {
            attempt: attempt.clone(),
            process,
            granting: Mutex::new(Some(granting)),
            waker: AtomicWaker::new(),
        });
        self.waits.lock().unwrap().insert(attempt.id, Arc::clone(&wait));
        let got = poll_fn(|cx| {
            wait.waker.register(cx.waker());
            match wait.granting.lock().unwrap().as_mut() {
                None => Poll::Ready(None),
                Some(granting) => granting.poll_unpin(cx).map(Some),
            }
        })
        .await?;
        wait.granting.lock().unwrap().take();
        let mut shadow = self.shadow();
        shadow.model.pass(Instant::now());
        self.see(&mut shadow);
        self.waits.lock().unwrap().remove(&attempt.id);
        match shadow.handed.remove(&attempt.id) {
            Some(Ok(expected)) => {
                self.compare_tokens(&mut shadow, attempt, &got, &expected);
            }
            Some(refused) => self.compare_grant(&mut shadow, attempt, &got, &refused),
            None => self.wrong(format!("{got:?} for op {}, out of turn", op_of(attempt))),
        }
        Some(got)
    }

    pub fn renew(&self, renewal: &Renewal) -> Result<Renewed, BackendError> {
        let now = Instant::now();
        let got = self.store.renew(renewal, now).now_or_never().expect("a store in memory");
        let mut shadow = self.shadow();
        let expected = shadow.model.renew(renewal, now);
        self.see(&mut shadow);
        if got != expected {
            self.wrong(format!("a renewal got {got:?} instead of {expected:?}"));
        }
        let held = shadow.model.held(renewal.resource.as_str());
        if got.is_ok()
            && let Some(held) = held.iter().find(|held| *held.lock_id() == renewal.lock_id)
        {
            let expires_us = self.history.us(held.expires);
            self.history.note(What::Renewed { token: held.token, expires_us });
        }
        got
    }

    /// Ends a grant, if the release can have been meant for it.
    pub fn unlock(&self, release: &Release) -> Result<(), BackendError> {
        let now = Instant::now();
        self.pass(now);
        let by = match &release.of {
            ReleaseOf::Owner(_) | ReleaseOf::Token(..) | ReleaseOf::Claim(..) => End::Owner,
            ReleaseOf::Anyone | ReleaseOf::Id(_) => End::Force,
            ReleaseOf::Attempt(attempt) => {
                self.end_wait(attempt.id);
                return self.end(release, End::Undo, now);
            }
        };
        let Some(bound) = release.target.fixed() else {
            self.fix(release);
            return self.end(release, by, now);
        };
        let bound = bound.parse().unwrap();
        let (meant, newer) = self.meant(release, bound);
        if newer.is_empty() {
            return self.end(release, by, now);
        }
        let mut ended = Err(BackendError::NotHeld { held: true });
        for lock_id in meant {
            let (resource, of) = (release.resource.clone(), ReleaseOf::Owner(lock_id));
            ended = self.end(&Release::new(resource, of), by, now);
        }
        ended
    }

    /// The lock IDs of the grants that the release names: those up to the token `bound`, and
    /// those since.
    fn meant(&self, release: &Release, bound: u64) -> (Vec<LockId>, Vec<LockId>) {
        let shadow = self.shadow();
        let is_named = |held: &&Held| match &release.of {
            ReleaseOf::Owner(lock_id) => held.lock_id() == lock_id,
            _ => true,
        };
        let named = shadow.model.held(release.resource.as_str()).iter().filter(is_named);
        let (meant, newer): (Vec<_>, Vec<_>) = named.partition(|held| held.token <= bound);
        let lock_ids =
            |held: Vec<&Held>| held.iter().map(|held| held.lock_id().clone()).collect();
        (lock_ids(meant), lock_ids(newer))
    }

    /// Fixes the newest grant that a release can be meant for.
    pub fn fix(&self, release: &Release) {
        if release.target.fixed().is_none() {
            release.target.fix(self.shadow().model.last_token().to_string());
        }
    }

    /// Deletes a lock without the protocol, as an operator may.
    pub fn operate(&self, release: &Release) {
        let _ = self.end(release, End::Operator, Instant::now());
    }

    /// Ends the waits of a process that is gone.
    pub fn end_waits_of(&self, process: u32) {
        self.gone.lock().unwrap().insert(process);
        self.end_waits(|wait| wait.process == process);
    }

    fn end_waits(&self, which: impl Fn(&Wait) -> bool) {
        let mut ended: Vec<_> = {
            let waits = self.waits.lock().unwrap();
            waits.values().filter(|wait| which(wait)).cloned().collect()
        };
        ended.sort_by_key(|wait| op_of(&wait.attempt));
        for wait in ended {
            self.end_wait(wait.attempt.id);
        }
    }

    /// Ends expired grants, in the model and in the store.
    pub fn pass(&self, now: Instant) {
        let mut shadow = self.shadow();
        shadow.model.pass(now);
        self.see(&mut shadow);
    }

    /// The tokens of live grants, and how many wait.
    pub fn left(&self) -> (Vec<u64>, usize) {
        self.pass(Instant::now());
        let shadow = self.shadow();
        (shadow.model.live(), shadow.model.waiting())
    }

    /// The model's token for one of the store's.
    pub fn token(&self, resource: u8, token: Option<u64>) -> u64 {
        let known = token.and_then(|theirs| self.shadow().ours.get(&theirs).copied());
        known.unwrap_or_else(|| {
            self.wrong(format!("token {token:?} of r{resource} was never granted"));
            0
        })
    }

    fn end(&self, release: &Release, by: End, now: Instant) -> Result<(), BackendError> {
        let got = self.store.unlock(release, now).now_or_never().expect("a store in memory");
        let mut shadow = self.shadow();
        // Grants that expire at this instant end first.
        shadow.model.pass(now);
        self.see(&mut shadow);
        let expected = shadow.model.unlock(release, now);
        if got != expected.clone().map(drop) {
            self.wrong(format!("{by:?} got {got:?} instead of {expected:?}"));
        }
        for token in expected.into_iter().flatten() {
            self.history.note(What::Ended { token, by });
        }
        self.see(&mut shadow);
        got
    }

    fn end_wait(&self, attempt: AttemptId) {
        let Some(wait) = self.waits.lock().unwrap().remove(&attempt) else { return };
        let was_waiting = {
            let mut shadow = self.shadow();
            let was_waiting = shadow.model.leave(&wait.attempt, Instant::now());
            self.see(&mut shadow);
            was_waiting
        };
        drop(wait.granting.lock().unwrap().take());
        wait.waker.wake();
        // Granted but not reported: the attempt's undo ends it, or its TTL.
        self.shadow().handed.remove(&attempt);
        if was_waiting {
            self.history.note(What::LeftQueue { op: op_of(&wait.attempt) });
        }
    }

    /// Records what the model has done by itself.
    fn see(&self, shadow: &mut Shadow) {
        for token in std::mem::take(&mut shadow.model.expired) {
            self.history.note(What::Ended { token, by: End::Ttl });
        }
        for (attempt, grant) in std::mem::take(&mut shadow.model.handed) {
            let wait = self.waits.lock().unwrap().get(&attempt).cloned();
            if let (Some(wait), Ok(grant)) = (wait, &grant) {
                self.note_grant(&wait.attempt, grant);
            }
            shadow.handed.insert(attempt, grant);
        }
    }

    fn note_grant(&self, attempt: &Attempt, grant: &Grant) {
        self.history.note(What::Granted {
            op: op_of(attempt),
            token: grant.token.unwrap().get(),
            resource: number(attempt.resource.as_str()),
            created: grant.created,
            expires_us: self.history.us((grant.since + grant.ttl).running()),
        });
    }

    fn compare_grant(
        &self,
        shadow: &mut Shadow,
        attempt: &Attempt,
        got: &Result<Grant, BackendError>,
        expected: &Result<Grant, BackendError>,
    ) {
        match (got, expected) {
            (Ok(_), Ok(expected)) => {
                self.note_grant(attempt, expected);
                self.compare_tokens(shadow, attempt, got, expected);
            }
            (Err(got), Err(expected))
                if unworded::<()>(Err(got.clone())) == unworded(Err(expected.clone())) => {}
            _ => self.wrong(format!("op {} got {got:?} not {expected:?}", op_of(attempt))),
        }
    }

    fn compare_tokens(
        &self,
        shadow: &mut Shadow,
        attempt: &Attempt,
        got: &Result<Grant, BackendError>,
        expected: &Grant,
    ) {
        let Ok(got) = got else {
            return self.wrong(format!("op {} got {got:?}", op_of(attempt)));
        };
        let resource = number(attempt.resource.as_str());
        let (theirs, ours) = (got.token.unwrap().get(), expected.token.unwrap().get());
        if (Grant { token: expected.token, ..got.clone() }) != *expected {
            self.wrong(format!("op {} got {got:?}, not {expected:?}", op_of(attempt)));
        }
        let known = shadow.theirs.insert(ours, theirs);
        shadow.ours.insert(theirs, ours);
        if known.is_some_and(|known| known != theirs) {
            self.wrong(format!("a token changed from {known:?} to {theirs}"));
        }
        // Readers that were granted together may be reported in any order.
        let of_resource = shadow.of_resource.entry(resource).or_default();
        of_resource.insert(ours, theirs);
        let before = of_resource.range(..ours).next_back().map(|(_, token)| *token);
        let after = of_resource.range(ours + 1..).next().map(|(_, token)| *token);
        if before >= Some(theirs) || after.is_some_and(|after| after <= theirs) {
            self.wrong(format!("token {theirs} of r{resource} between {before:?}, {after:?}"));
        }
    }

    fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap()
    }

    fn wrong(&self, what: String) {
        self.history.note(What::Wrong(what));
    }
}
