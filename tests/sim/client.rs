//! A client: does at random what clients do, and tells the history.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use leasehold::lock::{
    AcquireRequest, FencingToken, Granted, Holder, LockError, Mode, RenewRequest, Renewed,
    RequestId, ResourceId, UnlockRequest, inspect::GrantView, safe_deadline,
};
use tokio::time::{Instant, sleep};

use super::{
    history::{Call, OpId, Told, What},
    server::Server,
    world::{Plan, Process, Processes},
};

/// One client and its source of chance.
pub struct Client {
    pub rng: Rng,
    pub number: u8,
    pub plan: Plan,
    pub server: Arc<Server>,
    pub processes: Arc<Processes>,
    pub ops: Arc<AtomicU32>,
    /// Lock IDs that are over, to be tried again.
    pub stale: Vec<Name>,
}

/// A grant, as its client names it.
#[derive(Clone)]
pub struct Name {
    resource: u8,
    lock_id: String,
    token: u64,
    own: u8,
}

/// A grant that this client believes in.
struct Holding {
    name: Name,
    ttl_ms: u64,
    until: Instant,
    /// Nobody else renews it, and every renewal was answered: only then may
    /// the TTL change, because what is late on its way could shorten it again.
    settled: bool,
}

/// How a call ended for its caller.
enum Outcome<T> {
    Answered(T),
    /// The caller gave up, or its process died.
    Left,
}

impl Client {
    /// Does a number of things, one after the other.
    pub async fn run(mut self) {
        for _ in 0..self.plan.flows {
            self.pause(self.plan.ttl_ms_max.min(1_000)).await;
            match self.rng.u32(..1000) {
                chance if chance < self.plan.force_per_mille => self.force().await,
                chance if chance > 960 => self.foreign().await,
                chance if chance > 920 => self.stale().await,
                _ => self.acquire_and_hold().await,
            }
        }
    }

    async fn acquire_and_hold(&mut self) {
        let resource = self.resource();
        let request_id = match self.rng.u8(..10) {
            0..3 => format!("request-{}", self.ops.load(Ordering::Relaxed)),
            // One that several share, now and then at the same time.
            3 => "request-of-all".to_owned(),
            _ => String::new(),
        };
        let shared = self.rng.u32(..1000) < self.plan.shared_per_mille;
        let mut tries = 0;
        let holding = loop {
            let outcome = self.acquire(resource, &request_id, shared).await;
            tries += 1;
            match outcome {
                Some(holding) => break holding,
                None if request_id.is_empty() || tries > 2 || self.rng.bool() => return,
                None => self.pause(50).await,
            }
        };
        self.hold(holding).await;
    }

    async fn acquire(
        &mut self,
        resource: u8,
        request_id: &str,
        shared: bool,
    ) -> Option<Holding> {
        let process = self.processes.any(&mut self.rng);
        let op = self.op();
        let waits = self.rng.u8(..10) < 6;
        let replayable = !request_id.is_empty();
        let ttl_ms = if replayable { self.plan.ttl_ms_max } else { self.ttl_ms() };
        let deadline = (waits && self.rng.u8(..10) < 7)
            .then(|| Instant::now() + self.between(1, self.plan.wait_ms_max));
        let own = if self.rng.u8(..10) < 2 && !replayable { self.number } else { 0 };
        let deadline_us = deadline.map(|at| self.server.history.us(at));
        let call = if waits {
            Call::Lock { resource, ttl_ms, replayable, shared, own, deadline_us }
        } else {
            Call::Try { resource, ttl_ms, replayable, shared, own }
        };
        let lock_id = (own > 0).then(|| format!("own-{own}").parse().unwrap());
        let request = AcquireRequest {
            ttl: Some(Duration::from_millis(ttl_ms)),
            lock_id,
            request_id: RequestId::new(request_id).unwrap(),
            mode: if shared { Mode::Shared } else { Mode::Exclusive },
            holder: Holder::new(&op.to_string()).unwrap(),
            deadline,
            ..AcquireRequest::new(named(resource))
        };
        let store = process.store.clone();
        let acquiring = async move {
            if waits { store.lock(request).await } else { store.try_lock(request).await }
        };
        let patience = (waits && deadline.is_none()).then_some(self.plan.wait_ms_max);
        let outcome = self.called(op, &process, call, patience, acquiring).await;
        let Outcome::Answered(result) = outcome else { return None };
        let granted = match result {
            Ok(granted) => granted,
            Err(error) => {
                self.told(op, Told::Failed(error));
                return None;
            }
        };
        self.received(op, resource, own, granted, replayable)
    }

    /// The answer is there: takes it, or has gone meanwhile.
    #[allow(clippy::needless_pass_by_value, reason = "to drop it is not to receive it")]
    fn received(
        &mut self,
        op: OpId,
        resource: u8,
        own: u8,
        granted: Granted,
        shared: bool,
    ) -> Option<Holding> {
        let token = self.server.token(resource, granted.token.map(FencingToken::get));
        let until = safe_deadline(granted.since, granted.ttl);
        let safe_us = self.server.history.us(until);
        self.told(op, Told::Granted { token, safe_us });
        if self.rng.u8(..10) == 0 {
            self.server.history.note(What::NotReceived { op, token });
            return None;
        }
        granted.receipt.accept();
        let ttl_ms = u64::try_from(granted.ttl.as_millis()).unwrap();
        let lock_id = granted.lock_id.as_str().to_owned();
        self.believe(token, resource, until);
        let name = Name { resource, lock_id, token, own };
        Some(Holding { name, ttl_ms, until, settled: !shared })
    }

    async fn hold(&mut self, mut holding: Holding) {
        for _ in 0..self.rng.u8(..4) {
            self.pause(holding.ttl_ms.min(2_000) * 2 / 3).await;
            if !self.renew(&mut holding).await {
                break;
            }
        }
        self.pause(holding.ttl_ms.min(1_000)).await;
        match self.rng.u8(..20) {
            // Left to its TTL; and renewed when that is over.
            0 => {}
            1 if holding.ttl_ms < 5_000 => {
                tokio::time::sleep_until(holding.until).await;
                self.pause(holding.ttl_ms).await;
                self.renew(&mut holding).await;
            }
            2..5 => {
                self.unlock(&holding.name).await;
                self.unlock(&holding.name).await;
            }
            _ => self.unlock(&holding.name).await,
        }
        self.stale.push(holding.name);
    }

    /// Whether it is still held, as far as known.
    async fn renew(&mut self, holding: &mut Holding) -> bool {
        let process = self.processes.any(&mut self.rng);
        let op = self.op();
        let changed = self.rng.u8(..4) == 0 && holding.settled;
        let ttl_ms = if changed { self.ttl_ms() } else { holding.ttl_ms };
        holding.ttl_ms = ttl_ms;
        let ttl = Duration::from_millis(ttl_ms);
        // It may become shorter at once, whatever is answered.
        let sent_until = safe_deadline(Instant::now(), ttl);
        if sent_until < holding.until {
            holding.until = sent_until;
            self.believe(holding.name.token, holding.name.resource, holding.until);
        }
        let request = RenewRequest {
            resource: named(holding.name.resource),
            lock_id: holding.name.lock_id.parse().unwrap(),
            ttl: Some(ttl),
        };
        let store = process.store.clone();
        let call = Call::Renew { token: holding.name.token, ttl_ms };
        let renewing = async move { store.renew(request).await };
        match self.called(op, &process, call, None, renewing).await {
            Outcome::Answered(Ok(Renewed { ttl, since })) => {
                let until = safe_deadline(since, ttl);
                self.told(op, Told::Renewed { safe_us: self.server.history.us(until) });
                holding.until = until;
                self.believe(holding.name.token, holding.name.resource, until);
                true
            }
            Outcome::Answered(Err(error)) => {
                let gone = matches!(error, LockError::NotFound { .. });
                self.told(op, Told::Failed(error));
                holding.settled = false;
                !gone
            }
            Outcome::Left => {
                holding.settled = false;
                true
            }
        }
    }

    async fn unlock(&mut self, name: &Name) {
        let op = self.op();
        let call = Call::Unlock { token: name.token, own: name.own };
        self.unlock_as(op, call, name.resource, Some(&name.lock_id)).await;
    }

    async fn force(&mut self) {
        let (op, resource) = (self.op(), self.resource());
        self.unlock_as(op, Call::Force { resource }, resource, None).await;
    }

    /// Uses a lock ID that nobody was ever given.
    async fn foreign(&mut self) {
        let (op, resource) = (self.op(), self.resource());
        if self.rng.bool() {
            let call = Call::UnlockForeign { resource };
            return self.unlock_as(op, call, resource, Some("nobody's")).await;
        }
        let process = self.processes.any(&mut self.rng);
        let request = RenewRequest {
            resource: named(resource),
            lock_id: "nobody's".parse().unwrap(),
            ttl: None,
        };
        let store = process.store.clone();
        let renewing = async move { store.renew(request).await };
        let call = Call::RenewForeign { resource };
        match self.called(op, &process, call, None, renewing).await {
            Outcome::Answered(Ok(_)) => self.told(op, Told::Renewed { safe_us: 0 }),
            Outcome::Answered(Err(error)) => self.told(op, Told::Failed(error)),
            Outcome::Left => {}
        }
    }

    /// Uses a lock ID whose grant it has ended, or believes to be over.
    async fn stale(&mut self) {
        let Some(name) = self.rng.choice(&self.stale).cloned() else { return };
        if self.rng.bool() {
            return self.unlock(&name).await;
        }
        let request = RenewRequest {
            resource: named(name.resource),
            lock_id: name.lock_id.parse().unwrap(),
            ttl: Some(Duration::from_millis(self.plan.ttl_ms_max)),
        };
        let process = self.processes.any(&mut self.rng);
        let (op, store) = (self.op(), process.store.clone());
        let call = Call::RenewStale { token: name.token, own: name.own };
        let renewing = async move { store.renew(request).await };
        match self.called(op, &process, call, None, renewing).await {
            Outcome::Answered(Ok(_)) => self.told(op, Told::Renewed { safe_us: 0 }),
            Outcome::Answered(Err(error)) => self.told(op, Told::Failed(error)),
            Outcome::Left => {}
        }
    }

    async fn unlock_as(&mut self, op: OpId, call: Call, resource: u8, lock_id: Option<&str>) {
        let process = self.processes.any(&mut self.rng);
        let request = match lock_id {
            Some(lock_id) => UnlockRequest::owner(named(resource), lock_id.parse().unwrap()),
            None => UnlockRequest::force(named(resource)),
        };
        let store = process.store.clone();
        let unlocking = async move { store.unlock(request).await };
        match self.called(op, &process, call, None, unlocking).await {
            Outcome::Answered(Ok(())) => self.told(op, Told::Unlocked),
            Outcome::Answered(Err(error)) => self.told(op, Told::Failed(error)),
            Outcome::Left => {}
        }
    }

    /// Makes a call as a caller that may go away at any poll, at any time, or
    /// with its process.
    async fn called<T>(
        &mut self,
        op: OpId,
        process: &Process,
        call: Call,
        patience_ms: Option<u64>,
        future: impl Future<Output = T>,
    ) -> Outcome<T> {
        self.server.history.note(What::Called { op, process: process.number, call });
        let polls_max = if self.rng.u8(..20) == 0 { self.rng.u32(1..6) } else { u32::MAX };
        let patience = match patience_ms {
            Some(ms) => self.between(0, ms),
            None if self.rng.u8(..20) == 0 => self.between(0, 300),
            None => Duration::from_secs(600),
        };
        let future = UntilPoll { future: Box::pin(future), polls_left: polls_max };
        let answered = tokio::select! {
            biased;
            () = process.killed.cancelled() => None,
            answered = future => answered,
            () = sleep(patience) => None,
        };
        match answered {
            Some(answer) => Outcome::Answered(answer),
            None => {
                self.server.history.note(What::Left { op });
                Outcome::Left
            }
        }
    }

    fn told(&self, op: OpId, told: Told) {
        // The IDs of grants are random, and a schedule repeats to the byte.
        let told = match told {
            Told::Failed(LockError::Locked { by: Some(grant) }) => {
                let by = Some(GrantView { id: None, ..grant });
                Told::Failed(LockError::Locked { by })
            }
            told => told,
        };
        self.server.history.note(What::Told { op, told });
    }

    fn believe(&self, token: u64, resource: u8, until: Instant) {
        let until_us = self.server.history.us(until);
        self.server.history.note(What::Believed { token, resource, until_us });
    }

    fn op(&self) -> OpId {
        self.ops.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn resource(&mut self) -> u8 {
        self.rng.u8(..self.plan.resources)
    }

    fn ttl_ms(&mut self) -> u64 {
        self.rng.u64(self.plan.ttl_ms_min..=self.plan.ttl_ms_max)
    }

    fn between(&mut self, ms_min: u64, ms_max: u64) -> Duration {
        Duration::from_millis(self.rng.u64(ms_min..=ms_max))
    }

    async fn pause(&mut self, ms_max: u64) {
        let pause = self.between(0, ms_max);
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

/// The name of resource number `resource`.
fn named(resource: u8) -> ResourceId {
    format!("r{resource}").parse().unwrap()
}

/// Ends with `None` where a caller would drop the future: when it was polled
/// so many times in vain.
struct UntilPoll<F> {
    future: Pin<Box<F>>,
    polls_left: u32,
}

impl<F: Future> Future for UntilPoll<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        self.polls_left -= 1;
        if self.polls_left == 0 { Poll::Ready(None) } else { Poll::Pending }
    }
}
