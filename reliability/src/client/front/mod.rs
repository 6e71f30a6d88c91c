//! Clients of fronts: they lock as the lock libraries of Redis do, beside the other clients.
//! They poll, and get no tokens.

mod calls;
mod libraries;
mod link;
mod resp;

use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Builder;

use self::{
    libraries::{LIBRARIES, Library, Take},
    link::Link,
};
use super::{Client, Names, Settings};
use crate::history::{Call, Outcome};

/// How long a client polls for a lock, and the pause in between.
const POLLED_FOR_MS: std::ops::Range<u64> = 0..1_500;
const POLLED_EVERY_MS: std::ops::Range<u64> = 20..120;
/// How many of 100 locks use a resource that foreign clients lock too.
const FOREIGN_PERCENT: u32 = 20;

pub(super) async fn run(client: Client, settings: Settings) -> anyhow::Result<()> {
    let Client { mut rng, number, .. } = client.clone();
    let names = Names::new(settings.names.clone(), settings.began_ns, settings.resources);
    let link = Link::new(settings.fronts.clone(), number as usize, rng.fork());
    let pause_ms_max = settings.pause_ms_max.max(1);
    let library = LIBRARIES[number as usize % LIBRARIES.len()];
    let mut user = User { client, settings, names, link, library };
    while user.client.goes_on() {
        user.use_once().await?;
        user.client.pause_ms(0..pause_ms_max * 4).await;
    }
    Ok(())
}

struct User {
    client: Client,
    settings: Settings,
    names: Names,
    link: Link,
    library: Library,
}

/// A lock that it holds, or may hold.
struct Held {
    resource: String,
    value: String,
    ttl_ms: u64,
    ends: Instant,
}

impl User {
    /// Asks for a lock, uses it, and releases it.
    async fn use_once(&mut self) -> anyhow::Result<()> {
        let home = self.client.rng.usize(..self.link.fronts().max(1));
        // Most libraries know one address.
        let home = if self.client.rng.u8(..10) == 0 { home } else { self.link.home };
        self.link.change(home, self.library.is_resp3);
        let resource = self.resource();
        let ttl_ms = self.ttl_ms();
        let mut value = self.random_id();
        if self.client.rng.u32(..100) < 3 {
            return self.ask_and_leave(&resource, &value, ttl_ms).await;
        }
        let polled_for = Duration::from_millis(self.client.rng.u64(POLLED_FOR_MS));
        let give_up = Instant::now() + polled_for;
        loop {
            let ends = Instant::now() + Duration::from_millis(ttl_ms);
            match self.take(&resource, &value, ttl_ms).await? {
                Outcome::Granted(_) => {
                    return self.use_up(Held { resource, value, ttl_ms, ends }).await;
                }
                Outcome::Locked if self.library.releases_refused => {
                    self.release(&resource, &value).await?;
                    value = self.random_id();
                }
                _ => {}
            }
            if Instant::now() >= give_up || !self.client.goes_on() {
                return Ok(());
            }
            self.client.pause_ms(POLLED_EVERY_MS).await;
        }
    }

    /// Performs a few random steps with a lock, then mostly releases it.
    async fn use_up(&mut self, mut held: Held) -> anyhow::Result<()> {
        for _ in 0..self.client.rng.u32(..4) {
            match self.client.rng.u32(..100) {
                0..50 => self.renew(&mut held).await?,
                50..62 => self.release_wrong(&held.resource).await?,
                62..70 => {
                    // A renewal with another value is refused.
                    let value = self.random_id();
                    let ends = held.ends;
                    let (resource, ttl_ms) = (held.resource.clone(), held.ttl_ms);
                    let mut other = Held { resource, value, ttl_ms, ends };
                    self.renew(&mut other).await?;
                }
                70..80 => self.link.disconnect(),
                _ => self.client.pause_ms(0..60).await,
            }
        }
        match self.client.rng.u32(..100) {
            // Stalls while it holds, past the TTL.
            0..8 => {
                let over = Duration::from_millis(self.client.rng.u64(..400));
                sleep(held.ends.saturating_duration_since(Instant::now()) + over).await;
                if self.client.rng.bool() {
                    self.renew(&mut held).await?;
                }
                self.release(&held.resource, &held.value).await
            }
            // Abandons it to its TTL.
            8..12 => Ok(()),
            // The value is the lock ID, which the component accepts too.
            12..20 => {
                let (lock_id, ttl_ms) = (held.value, held.ttl_ms);
                let call = Call::Renew { lock_id: lock_id.clone(), ttl_ms };
                let caller = self.client.anywhere();
                caller.call(&held.resource, call, None).await?;
                caller.call(&held.resource, Call::Unlock { lock_id }, None).await.map(drop)
            }
            20..30 => {
                let other = self.client.rng.usize(..self.link.fronts().max(1));
                self.link.change(other, self.library.is_resp3);
                self.release(&held.resource, &held.value).await
            }
            _ => self.release(&held.resource, &held.value).await,
        }
    }

    fn resource(&mut self) -> String {
        if self.settings.redis.is_some() && self.client.rng.u32(..100) < FOREIGN_PERCENT {
            let number = self.client.rng.u32(..self.settings.resources.max(1));
            return format!("{}foreign/{number}", self.settings.names);
        }
        self.names.pick(&mut self.client.rng).name
    }

    /// Mostly short, so that many grants expire; in whole seconds if the library has no other
    /// unit. Other TTLs are longer than any call on a busy machine.
    fn ttl_ms(&mut self) -> u64 {
        if self.library.take == Take::Seconds {
            return 1_000 * self.client.rng.u64(3..6);
        }
        match self.client.rng.u32(..10) {
            0..6 => self.client.rng.u64(200..900),
            _ => self.client.rng.u64(2_500..6_000),
        }
    }

    fn random_id(&mut self) -> String {
        let mut bytes = [0; 16];
        self.client.rng.fill(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid().to_string()
    }
}
