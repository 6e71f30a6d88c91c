//! Clients that renew and unlock each other's grants, at any leasehold process,
//! and hold some of them to their safe deadline.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Client, LASTING, Role, Settings};
use crate::{
    check::safe_ns,
    history::{Call, Outcome},
};

/// Few, so that a lease of one grant fits the next one. Short ones give many
/// rounds in a run, long ones show late ends.
const TTLS_MS: [u64; 8] = [2_000, 2_000, 3_000, 3_000, 4_000, 5_000, 8_000, 12_000];
/// How long before its safe deadline a grant that is held to the end is used
/// once more.
const BEFORE_THE_END_MS: std::ops::Range<u64> = 40..250;
/// How many grants wait in the pool at most.
const POOL_MAX: usize = 24;
/// How many resources are locked for hours in one step.
const LASTING_AT_ONCE: u32 = 40;

/// A grant that clients share.
#[derive(Clone, Debug)]
struct Shared {
    resource: String,
    lock_id: String,
    /// Its safe deadline.
    safe_until: Instant,
}

/// The grants that every client of a process may use.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Shared>>>);

impl Pool {
    fn put(&self, grant: Shared) {
        let mut grants = self.0.lock();
        if grants.len() < POOL_MAX {
            grants.push(grant);
        }
    }

    /// A copy of a random grant, which others may use at the same time.
    fn look(&self, rng: &mut fastrand::Rng) -> Option<Shared> {
        let grants = self.0.lock();
        rng.choice(&*grants).cloned()
    }

    fn take(&self, rng: &mut fastrand::Rng) -> Option<Shared> {
        let mut grants = self.0.lock();
        let place = (!grants.is_empty()).then(|| rng.usize(..grants.len()))?;
        Some(grants.swap_remove(place))
    }
}

pub(super) async fn run(client: Client, pool: Pool, settings: Settings) -> anyhow::Result<()> {
    let mut sharing = Sharing { client, pool, settings };
    while sharing.client.goes_on() {
        sharing.step().await?;
        sharing.client.pause_ms(1..60).await;
    }
    while let Some(grant) = sharing.pool.take(&mut sharing.client.rng) {
        sharing.unlock(grant).await?;
    }
    Ok(())
}

struct Sharing {
    client: Client,
    pool: Pool,
    settings: Settings,
}

impl Sharing {
    async fn step(&mut self) -> anyhow::Result<()> {
        let resources = self.settings.resources.max(1);
        let number = self.client.rng.u32(..resources);
        let prefix = &self.settings.names;
        let pooled = format!("{prefix}shared/{number}");
        if self.settings.role == Role::Lasting && self.client.rng.bool() {
            return self.lock_for_hours().await;
        }
        match self.client.rng.u32(..100) {
            0..60 => {
                // With readers, several clients hold the same resource.
                let alone = if self.client.readers.are_none() { resources } else { 3 };
                let own = format!("{prefix}passed-on/{}", self.client.number % alone);
                self.pass_on(&own).await
            }
            60..80 => {
                let ttl_ms = self.ttl_ms();
                let process = self.process();
                if let Some(grant) = self.acquire(process, &pooled, ttl_ms).await? {
                    self.pool.put(grant);
                }
                Ok(())
            }
            80..88 => match self.pool.look(&mut self.client.rng) {
                Some(mut grant) => {
                    let (process, ttl_ms) = (self.process(), self.ttl_ms());
                    self.renew(process, &mut grant, ttl_ms).await.map(drop)
                }
                None => Ok(()),
            },
            88..94 => match self.pool.take(&mut self.client.rng) {
                Some(grant) => self.unlock(grant).await,
                None => Ok(()),
            },
            _ => match self.pool.take(&mut self.client.rng) {
                Some(grant) => self.hold_to_the_end(grant).await,
                None => Ok(()),
            },
        }
    }

    /// A grant is made at one process, renewed at another one and at the first
    /// again, and unlocked; then the first process makes another grant with the
    /// same TTL, which is held to its end.
    async fn pass_on(&mut self, resource: &str) -> anyhow::Result<()> {
        let (first, second) = (self.process(), self.process());
        let (ttl_ms, other_ms) = (self.ttl_ms(), self.ttl_ms());
        let asked = Instant::now();
        let Some(mut grant) = self.acquire(first, resource, ttl_ms).await? else {
            return Ok(());
        };
        self.client.pause_ms(1..200).await;
        if !self.renew(second, &mut grant, other_ms).await? {
            return self.unlock(grant).await;
        }
        // So late that the first grant's lease has hardly any time left.
        let late = Duration::from_millis(ttl_ms * self.client.rng.u64(60..97) / 100);
        self.client.until((asked + late).min(before_the_end(&grant))).await;
        let again_ms = if self.client.rng.bool() { ttl_ms } else { other_ms };
        self.renew(first, &mut grant, again_ms).await?;
        let last = if self.client.rng.u8(..3) == 0 { second } else { first };
        self.unlock_at(last, grant).await?;
        if !self.client.goes_on() {
            return Ok(());
        }
        match self.acquire(first, resource, ttl_ms).await? {
            Some(grant) => self.hold_to_the_end(grant).await,
            None => Ok(()),
        }
    }

    /// A grant must exist until shortly before its safe deadline, at every
    /// process.
    async fn hold_to_the_end(&mut self, mut grant: Shared) -> anyhow::Result<()> {
        let early = Duration::from_millis(self.client.rng.u64(BEFORE_THE_END_MS));
        let until = grant.safe_until.checked_sub(early).unwrap_or(grant.safe_until);
        self.client.until(until).await;
        if self.client.rng.bool() {
            let (process, ttl_ms) = (self.process(), self.ttl_ms());
            self.renew(process, &mut grant, ttl_ms).await?;
        }
        self.unlock(grant).await
    }

    /// Locks many resources for hours, renews half of them at any process, and unlocks
    /// them soon: any leftover stays for long.
    async fn lock_for_hours(&mut self) -> anyhow::Result<()> {
        let mut held = Vec::new();
        for number in 0..LASTING_AT_ONCE {
            if !self.client.goes_on() {
                break;
            }
            let prefix = &self.settings.names;
            let resource = format!("{prefix}{LASTING}{}-{number}", self.client.number);
            let ttl_ms = self.hours_ms();
            held.extend(self.acquire(self.client.number as usize, &resource, ttl_ms).await?);
        }
        for mut grant in held {
            if self.client.goes_on() && self.client.rng.bool() {
                let (process, ttl_ms) = (self.process(), self.hours_ms());
                self.renew(process, &mut grant, ttl_ms).await?;
            }
            self.unlock(grant).await?;
        }
        Ok(())
    }

    async fn acquire(
        &mut self,
        process: usize,
        resource: &str,
        ttl_ms: u64,
    ) -> anyhow::Result<Option<Shared>> {
        let acquisition = self.client.asks(ttl_ms);
        let call = if self.client.rng.bool() {
            Call::Try(acquisition)
        } else {
            Call::Lock { acquisition, wait_ms: self.client.rng.u64(200..2_500) }
        };
        let sent = Instant::now();
        let outcome = self.client.caller.at(process).call(resource, call, None).await?;
        let Outcome::Granted(granted) = outcome else { return Ok(None) };
        let lasts_ns = granted.waited_ns.saturating_add(safe_ns(granted.ttl_ns));
        Ok(Some(Shared {
            resource: resource.to_owned(),
            lock_id: granted.lock_id,
            safe_until: sent + Duration::from_nanos(lasts_ns),
        }))
    }

    async fn renew(
        &mut self,
        process: usize,
        grant: &mut Shared,
        ttl_ms: u64,
    ) -> anyhow::Result<bool> {
        let call = Call::Renew { lock_id: grant.lock_id.clone(), ttl_ms };
        let sent = Instant::now();
        match self.client.caller.at(process).call(&grant.resource, call, None).await? {
            Outcome::Renewed { ttl_ns } => {
                grant.safe_until = sent + Duration::from_nanos(safe_ns(ttl_ns));
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn unlock(&mut self, grant: Shared) -> anyhow::Result<()> {
        let process = self.process();
        self.unlock_at(process, grant).await
    }

    async fn unlock_at(&mut self, process: usize, grant: Shared) -> anyhow::Result<()> {
        let call = Call::Unlock { lock_id: grant.lock_id };
        self.client.caller.at(process).call(&grant.resource, call, None).await.map(drop)
    }

    fn process(&mut self) -> usize {
        self.client.rng.usize(..self.client.caller.processes())
    }

    fn hours_ms(&mut self) -> u64 {
        1_000 * self.client.rng.u64(3_600..86_400)
    }

    fn ttl_ms(&mut self) -> u64 {
        TTLS_MS[self.client.rng.usize(..TTLS_MS.len())]
    }
}

fn before_the_end(grant: &Shared) -> Instant {
    let early = Duration::from_millis(BEFORE_THE_END_MS.start);
    grant.safe_until.checked_sub(early).unwrap_or(grant.safe_until)
}
