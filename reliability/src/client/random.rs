//! What one client does next.

use std::{collections::VecDeque, time::Duration};

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Builder;

use super::{
    Caller,
    modes::Readers,
    names::{Names, Resource},
};
use crate::history::{Acquisition, Call, Mode, Outcome};

/// How many locks a client holds at most, and how many if some are shared.
const HELD_MAX: usize = 2;
const HELD_SHARED_MAX: usize = 5;
/// After how long the first of two equal calls is cancelled, and the second is sent, at most.
const FIRST_CALL_US_MAX: u64 = 20_000;
/// How many ended grants it remembers, to use them once more.
const ENDED_MAX: usize = 8;

/// A client: a random walk over all operations on locks.
pub(super) struct RandomClient {
    caller: Caller,
    names: Names,
    readers: Readers,
    rng: fastrand::Rng,
    pause_ms_max: u64,
    held: VecDeque<Held>,
    ended: VecDeque<Held>,
    /// The last acquisition with a request ID, to be asked again.
    repeatable: Option<(Resource, Call)>,
}

#[derive(Clone)]
struct Held {
    resource: Resource,
    mode: Mode,
    lock_id: String,
    /// Its public ID; empty if it is not known.
    grant_id: String,
    /// When the TTL may be over.
    ends: Instant,
}

impl RandomClient {
    pub(super) fn new(
        caller: Caller,
        names: Names,
        readers: Readers,
        rng: fastrand::Rng,
        pause_ms_max: u64,
    ) -> Self {
        let (held, ended) = (VecDeque::new(), VecDeque::new());
        Self { caller, names, readers, rng, pause_ms_max, held, ended, repeatable: None }
    }

    /// Runs until `stop`; then unlocks half of its locks, and leaves the rest
    /// to expire.
    pub(super) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            self.step().await?;
            let pause = self.rng.u64(..=self.pause_ms_max);
            tokio::select! {
                () = sleep(Duration::from_millis(pause)) => {}
                () = stop.cancelled() => {}
            }
        }
        while let Some(held) = self.held.pop_front() {
            if self.rng.bool() {
                self.unlock(held).await?;
            }
        }
        Ok(())
    }

    async fn step(&mut self) -> anyhow::Result<()> {
        let held_max = if self.readers.are_none() { HELD_MAX } else { HELD_SHARED_MAX };
        let full = self.held.len() >= held_max;
        if (full || self.rng.u32(..100) < 75)
            && let Some(held) = self.held.pop_front()
        {
            return self.use_up(held).await;
        }
        match self.rng.u32(..100) {
            0..78 => self.acquire().await,
            78..84 => self.repeat().await,
            84..89 => self.unlock_wrong().await,
            89..92 => self.force().await,
            _ => self.use_again().await,
        }
    }

    /// Performs an operation on a held lock.
    async fn use_up(&mut self, held: Held) -> anyhow::Result<()> {
        match self.rng.u32(..100) {
            0..45 => self.unlock(held).await,
            45..70 => self.renew(held).await,
            70..82 => {
                let hold = self.rng.u64(..60);
                sleep(Duration::from_millis(hold)).await;
                self.unlock(held).await
            }
            82..88 => {
                // Stalls while it holds, past the TTL.
                let over = Duration::from_millis(self.rng.u64(..400));
                sleep(held.ends.saturating_duration_since(Instant::now()) + over).await;
                if self.rng.bool() { self.renew(held).await } else { self.unlock(held).await }
            }
            88..92 if held.resource.is_forced => {
                let resource = held.resource.clone();
                let call = match self.rng.u32(..3) {
                    0 => Call::EndAll,
                    1 if !held.grant_id.is_empty() => {
                        Call::End { grant_id: held.grant_id.clone() }
                    }
                    _ => Call::Force,
                };
                self.forget(held);
                self.caller.call(&resource.name, call, None).await?;
                Ok(())
            }
            88..94 => {
                let lock_id = self.random_id();
                let call = Call::UnlockWrong { lock_id };
                self.caller.call(&held.resource.name, call, None).await?;
                self.held.push_back(held);
                Ok(())
            }
            // Walks away, and leaves it to its TTL.
            94..97 => {
                self.forget(held);
                Ok(())
            }
            _ => {
                self.held.push_back(held);
                self.acquire().await
            }
        }
    }

    async fn acquire(&mut self) -> anyhow::Result<()> {
        let mode = self.readers.draw(&mut self.rng);
        if mode == Mode::Shared && self.rng.u32(..4) == 0 && !self.held.is_empty() {
            return self.join_own().await;
        }
        let resource = self.names.pick(&mut self.rng);
        let ttl_ms = self.ttl_ms();
        let lock_id = (self.rng.u32(..6) == 0).then(|| self.random_id());
        // Seldom both: repeated after its end, such a request makes another
        // grant with the same lock ID, about which less is certain.
        let with_both = self.rng.u32(..12) == 0;
        let request_id = (self.rng.u32(..6) == 0 && (lock_id.is_none() || with_both))
            .then(|| self.random_id());
        let acquisition = Acquisition { ttl_ms, mode, lock_id, request_id };
        let call = if resource.is_crowded
            || (resource.is_waited_for && self.rng.u32(..100) < 55)
        {
            let wait_ms =
                if resource.is_crowded { self.rng.u64(1_000..4_000) } else { self.wait_ms() };
            Call::Lock { acquisition, wait_ms }
        } else {
            Call::Try(acquisition)
        };
        self.carry_out(resource, call).await
    }

    /// Asks for a shared grant beside a held one, sometimes with its lock ID, which is
    /// refused while that one lives.
    async fn join_own(&mut self) -> anyhow::Result<()> {
        let place = self.rng.usize(..self.held.len());
        let (resource, mode) = (self.held[place].resource.clone(), self.held[place].mode);
        let lock_id = (mode == Mode::Shared && self.rng.u32(..5) == 0)
            .then(|| self.held[place].lock_id.clone());
        let ttl_ms = self.ttl_ms();
        let acquisition =
            Acquisition { ttl_ms, mode: Mode::Shared, lock_id, ..Acquisition::default() };
        let call = if resource.is_waited_for && self.rng.bool() {
            Call::Lock { acquisition, wait_ms: self.wait_ms() }
        } else {
            Call::Try(acquisition)
        };
        self.carry_out(resource, call).await
    }

    /// Repeats the last request ID: unchanged, or sometimes in the other mode.
    async fn repeat(&mut self) -> anyhow::Result<()> {
        let Some((resource, mut call)) = self.repeatable.clone() else {
            return self.acquire().await;
        };
        if !self.readers.are_none() && self.rng.u32(..4) == 0 {
            Self::in_the_other_mode(&mut call);
        }
        self.carry_out(resource, call).await
    }

    fn in_the_other_mode(call: &mut Call) {
        if let Call::Try(acquisition) | Call::Lock { acquisition, .. } = call {
            acquisition.mode = match acquisition.mode {
                Mode::Exclusive => Mode::Shared,
                Mode::Shared => Mode::Exclusive,
            };
        }
    }

    async fn carry_out(&mut self, resource: Resource, call: Call) -> anyhow::Result<()> {
        let Some(acquisition) = call.acquisition().cloned() else { return Ok(()) };
        if acquisition.request_id.is_some() {
            self.repeatable = Some((resource.clone(), call.clone()));
        }
        let patience = self.patience(matches!(call, Call::Lock { .. }));
        let is_doubled = acquisition.request_id.is_some() && self.rng.u32(..3) == 0;
        let sent = Instant::now();
        let outcome = if is_doubled {
            self.call_twice(&resource, call, patience).await?
        } else {
            self.caller.call(&resource.name, call, patience).await?
        };
        match (outcome, acquisition.lock_id) {
            (Outcome::Granted(granted), _) => {
                let lasts = granted.waited_ns.saturating_add(granted.ttl_ns);
                let ends = sent + Duration::from_nanos(lasts);
                self.held.retain(|held| held.lock_id != granted.lock_id);
                let (mode, lock_id, grant_id) =
                    (acquisition.mode, granted.lock_id, granted.grant_id);
                self.held.push_back(Held { resource, mode, lock_id, grant_id, ends });
            }
            // A failed or unknown acquisition is followed up with its own lock
            // ID.
            (Outcome::Unavailable | Outcome::Unknown(_), Some(lock_id)) => {
                let (mode, grant_id) = (acquisition.mode, String::new());
                self.ended.push_back(Held { resource, mode, lock_id, grant_id, ends: sent });
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends a request twice, at any two processes, as a client does that fears that its
    /// first call is lost, and cancels the first. Whatever ends with that call must not end
    /// the grant that the second is answered with.
    async fn call_twice(
        &mut self,
        resource: &Resource,
        call: Call,
        patience: Option<Duration>,
    ) -> anyhow::Result<Outcome> {
        let processes = self.caller.processes().max(1);
        let first = self.caller.at(self.rng.usize(..processes));
        let second = self.caller.at(self.rng.usize(..processes));
        let given_up_after = Duration::from_micros(self.rng.u64(..FIRST_CALL_US_MAX));
        let later_by = Duration::from_micros(self.rng.u64(..FIRST_CALL_US_MAX));
        let again = async {
            sleep(later_by).await;
            second.call(&resource.name, call.clone(), patience).await
        };
        let (given_up, answered) =
            tokio::join!(first.call(&resource.name, call.clone(), Some(given_up_after)), again);
        let (given_up, answered) = (given_up?, answered?);
        let only_first =
            matches!(given_up, Outcome::Granted(_)) && !matches!(answered, Outcome::Granted(_));
        Ok(if only_first { given_up } else { answered })
    }

    async fn renew(&mut self, held: Held) -> anyhow::Result<()> {
        let ttl_ms = self.ttl_ms();
        let call = Call::Renew { lock_id: held.lock_id.clone(), ttl_ms };
        let patience = self.patience(false);
        let sent = Instant::now();
        match self.caller.call(&held.resource.name, call, patience).await? {
            Outcome::Renewed { ttl_ns } => {
                let ends = sent + Duration::from_nanos(ttl_ns);
                self.held.push_back(Held { ends, ..held });
            }
            Outcome::NotHeld { .. } => self.forget(held),
            _ => self.held.push_back(held),
        }
        Ok(())
    }

    async fn unlock(&mut self, held: Held) -> anyhow::Result<()> {
        let call = Call::Unlock { lock_id: held.lock_id.clone() };
        let patience = self.patience(false);
        match self.caller.call(&held.resource.name, call, patience).await? {
            // It was not carried out, so the lock is still held.
            Outcome::Unavailable => self.held.push_back(held),
            _ => self.forget(held),
        }
        Ok(())
    }

    /// Renews, unlocks or ends an ended grant.
    async fn use_again(&mut self) -> anyhow::Result<()> {
        if self.ended.is_empty() {
            return self.acquire().await;
        }
        let Held { resource, lock_id, grant_id, .. } =
            self.ended[self.rng.usize(..self.ended.len())].clone();
        let call = match self.rng.u32(..6) {
            0 if !grant_id.is_empty() => Call::End { grant_id },
            0..4 => Call::Renew { lock_id, ttl_ms: self.ttl_ms() },
            _ => Call::Unlock { lock_id },
        };
        self.caller.call(&resource.name, call, None).await?;
        Ok(())
    }

    async fn unlock_wrong(&mut self) -> anyhow::Result<()> {
        let resource = self.names.pick(&mut self.rng);
        let lock_id = self.random_id();
        self.caller.call(&resource.name, Call::UnlockWrong { lock_id }, None).await?;
        Ok(())
    }

    async fn force(&mut self) -> anyhow::Result<()> {
        let resource = self.names.pick(&mut self.rng);
        if !resource.is_forced {
            return self.acquire().await;
        }
        let call = if self.rng.bool() { Call::Force } else { Call::EndAll };
        self.caller.call(&resource.name, call, None).await?;
        Ok(())
    }

    fn forget(&mut self, held: Held) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(held);
    }

    /// Mostly short, so that many grants expire.
    fn ttl_ms(&mut self) -> u64 {
        match self.rng.u32(..10) {
            0..6 => self.rng.u64(200..600),
            6..9 => self.rng.u64(600..1200),
            _ => self.rng.u64(1200..2000),
        }
    }

    fn wait_ms(&mut self) -> u64 {
        match self.rng.u32(..100) {
            0..60 => self.rng.u64(30..300),
            60..97 => self.rng.u64(300..1500),
            _ => 2_000,
        }
    }

    /// Sometimes a call is cancelled in flight.
    fn patience(&mut self, waits: bool) -> Option<Duration> {
        let us = match self.rng.u32(..100) {
            0..3 => self.rng.u64(..3_000),
            3..6 if waits => self.rng.u64(..300_000),
            _ => return None,
        };
        Some(Duration::from_micros(us))
    }

    fn random_id(&mut self) -> String {
        let mut bytes = [0; 16];
        self.rng.fill(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid().to_string()
    }
}
