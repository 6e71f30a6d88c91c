//! The memory backend with faults drawn from the seed. Records in the ledger what happened.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use fastrand::Rng;
use leasehold_lock::{
    self as lock, Attempt, Backend, BackendError, Clock, Context, Feature, Grant, Release,
    Renewal, Renewed, Settings,
};
use leasehold_memory::Memory;
use tokio::time::{Instant, sleep};

use super::{
    Plan,
    ledger::{Ledger, What},
};

pub(super) struct FaultyBackend {
    pub(super) memory: Arc<Memory>,
    ledger: Arc<Ledger>,
    chance: Mutex<(Rng, u32, u64)>,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fine,
    NotSent,
    ReplyLost,
    Silent,
}

/// A renewal under way. Its end is recorded when this is dropped.
struct Renewing<'a>(&'a Ledger, u32);

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        self.0.note(self.1, What::RenewalEnded);
    }
}

impl FaultyBackend {
    pub(super) fn new(plan: &Plan, rng: Rng, ledger: Arc<Ledger>) -> Self {
        let clock = Clock::from_fn(|| 1);
        let memory = Memory::new(&Context::new(Settings::default(), clock));
        let chance = Mutex::new((rng, plan.faults_per_mille, plan.delay_ms_max));
        Self { memory: Arc::new(memory), ledger, chance }
    }

    /// An outcome, and the delays before and after what happens.
    fn draw(&self) -> (Outcome, Duration, Duration) {
        let mut chance = self.chance.lock().unwrap();
        let (rng, faults_per_mille, delay_ms_max) = &mut *chance;
        let outcome = if rng.u32(..1000) >= *faults_per_mille {
            Outcome::Fine
        } else {
            [Outcome::NotSent, Outcome::ReplyLost, Outcome::Silent][rng.usize(..3)]
        };
        let slow = if rng.u8(..40) == 0 { 50 } else { 1 };
        let mut delay = || Duration::from_millis(rng.u64(0..=*delay_ms_max * slow));
        (outcome, delay(), delay())
    }

    async fn through<T>(
        &self,
        number: u32,
        happens: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let (outcome, there, back) = self.draw();
        if outcome != Outcome::Fine {
            self.ledger.note(number, What::Fault(outcome));
        }
        self.ledger.note(number, What::Takes(there + back));
        if outcome == Outcome::NotSent {
            sleep(back).await;
            return Err(BackendError::Unavailable("not sent".into()));
        }
        sleep(there).await;
        let result = happens();
        match outcome {
            Outcome::Silent => std::future::pending().await,
            Outcome::ReplyLost => {
                sleep(back).await;
                Err(BackendError::Unknown("the reply was lost".into()))
            }
            Outcome::Fine | Outcome::NotSent => {
                sleep(back).await;
                result
            }
        }
    }
}

fn number(resource: &str) -> u32 {
    resource[1..].parse().unwrap()
}

fn now_or_never<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).unwrap()
}

#[async_trait]
impl Backend for FaultyBackend {
    fn features(&self) -> &[Feature] {
        self.memory.features()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        self.memory.try_lock(attempt, until).await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.memory.lock(attempt).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let (number, since) = (number(renewal.resource.as_str()), lock::Instant::now());
        self.ledger.note(number, What::Renews);
        let _renewing = Renewing(&self.ledger, number);
        let happens = || {
            let result = now_or_never(self.memory.renew(renewal, until));
            if result.is_ok() {
                self.ledger.note(number, What::RenewalHappened);
            }
            result
        };
        let renewed = Renewed { since, ..self.through(number, happens).await? };
        self.ledger.renewed(number, renewed);
        Ok(renewed)
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        let number = number(release.resource.as_str());
        self.ledger.note(number, What::UnlockSent);
        release.target.fix("sent");
        let happens = || {
            let result = now_or_never(self.memory.unlock(release, until));
            if result.is_ok() {
                self.ledger.note(number, What::UnlockHappened);
            }
            result
        };
        self.through(number, happens).await
    }

    async fn ping(&self, _: Instant) -> Result<(), BackendError> {
        Ok(())
    }

    async fn close(&self) {}
}
