//! A client: makes random calls and records them in the history.

mod call;
mod others;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use leasehold_lock::{
    AcquireRequest, FencingToken, Granted, Holder, LockError, Mode, RenewRequest, Renewed,
    RequestId, ResourceId, safe_deadline,
};
use tokio::time::{Instant, sleep};

use super::{
    history::{Answer, Call, OpId, What},
    server::Server,
    world::{Plan, Processes},
};
use call::Outcome;

/// One client and its source of chance.
pub struct Client {
    pub rng: Rng,
    pub number: u8,
    pub plan: Plan,
    pub server: Arc<Server>,
    pub processes: Arc<Processes>,
    pub ops: Arc<AtomicU32>,
    /// Lock IDs of ended grants, to be tried again.
    pub stale: Vec<Name>,
}

/// A client's name of a grant.
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
    /// Whether nobody else renews it and every renewal was answered: only then
    /// may the TTL change, because a late message could shorten it again.
    settled: bool,
}

impl Client {
    /// Runs a number of flows, one after the other.
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
            // A request ID that several clients share, sometimes at the same time.
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
                self.answered(op, Answer::Failed(error));
                return None;
            }
        };
        self.received(op, resource, own, granted, replayable)
    }

    /// The answer is there: receives it, unless the caller has gone meanwhile.
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
        let until = safe_deadline(granted.since, granted.ttl).running();
        let safe_us = self.server.history.us(until);
        self.answered(op, Answer::Granted { token, safe_us });
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
            // Left to its TTL, and renewed after its end.
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

    /// Renews. Returns whether it is still held, as far as known.
    async fn renew(&mut self, holding: &mut Holding) -> bool {
        let process = self.processes.any(&mut self.rng);
        let op = self.op();
        let changed = self.rng.u8(..4) == 0 && holding.settled;
        let ttl_ms = if changed { self.ttl_ms() } else { holding.ttl_ms };
        holding.ttl_ms = ttl_ms;
        let ttl = Duration::from_millis(ttl_ms);
        // It may become shorter at once, whatever the answer is.
        let sent_until = safe_deadline(leasehold_lock::Instant::now(), ttl).running();
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
            Outcome::Answered(Ok(Renewed { ttl, since, .. })) => {
                let until = safe_deadline(since, ttl).running();
                self.answered(op, Answer::Renewed { safe_us: self.server.history.us(until) });
                holding.until = until;
                self.believe(holding.name.token, holding.name.resource, until);
                true
            }
            Outcome::Answered(Err(error)) => {
                let gone = matches!(error, LockError::NotFound { .. });
                self.answered(op, Answer::Failed(error));
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
