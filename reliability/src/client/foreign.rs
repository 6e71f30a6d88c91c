//! Clients of Redis that lock as the built-in `lock.redis` does, by `SET NX` and
//! a script that compares and deletes. They use leasehold too, sometimes with
//! the same owner's name.

use std::{net::SocketAddr, time::Duration};

use leasehold_testkit::lock_scripts::DAPRD_UNLOCK;
use redis::{Script, aio::MultiplexedConnection, cmd};
use tokio::time::timeout;
use uuid::Builder;

use super::{Client, Settings};
use crate::history::{Acquisition, Call, Granted, Mode, Outcome};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const TTL_MS: std::ops::Range<u64> = 1_500..10_000;
/// One of this many locks is so long that nobody waits for its expiry.
const LONG_OF: u8 = 3;
const LONG_TTL_MS: std::ops::Range<u64> = 15_000..30_000;

pub(super) async fn run(
    client: Client,
    redis: SocketAddr,
    settings: Settings,
) -> anyhow::Result<()> {
    let server = redis::Client::open(format!("redis://{redis}/"))?;
    let (owner, request) = (String::new(), String::new());
    let mode = Mode::default();
    let mut foreign = Foreign { client, server, connection: None, owner, request, mode };
    while foreign.client.goes_on() {
        let number = foreign.client.rng.u32(..settings.resources.max(1));
        let resource = format!("{}foreign/{number}", settings.names);
        foreign.use_once(&resource).await?;
        foreign.client.pause_ms(1..300).await;
    }
    Ok(())
}

struct Foreign {
    client: Client,
    server: redis::Client,
    connection: Option<MultiplexedConnection>,
    /// Its lock ID.
    owner: String,
    request: String,
    /// The mode of its requests to leasehold.
    mode: Mode,
}

impl Foreign {
    /// Acquires under a new name, then performs a few random steps under the
    /// same name; in the end nothing is held under it.
    async fn use_once(&mut self, resource: &str) -> anyhow::Result<()> {
        self.owner = self.random_id();
        self.request = self.random_id();
        self.mode = self.client.readers.draw(&mut self.client.rng);
        self.acquire(resource).await?;
        for _ in 0..self.client.rng.u32(1..5) {
            self.client.pause_ms(0..500).await;
            match self.client.rng.u32(..100) {
                0..30 => self.acquire(resource).await?,
                30..50 => self.unlock(resource).await?,
                50..75 => self.foreign_unlock(resource).await?,
                _ => {
                    let ttl_ms = self.client.rng.u64(TTL_MS);
                    let call = Call::Renew { lock_id: self.owner.clone(), ttl_ms };
                    self.client.anywhere().call(resource, call, None).await?;
                }
            }
        }
        if self.client.rng.u8(..4) == 0 {
            self.foreign_unlock(resource).await
        } else {
            self.unlock(resource).await
        }
    }

    async fn acquire(&mut self, resource: &str) -> anyhow::Result<()> {
        let is_long = self.client.rng.u8(..LONG_OF) == 0;
        let ttl_ms = self.client.rng.u64(if is_long { LONG_TTL_MS } else { TTL_MS });
        let lock_id = Some(self.owner.clone());
        let mut acquisition = Acquisition { ttl_ms, lock_id, ..Acquisition::default() };
        let way = self.client.rng.u32(..100);
        // A shared grant and a foreign one must not have the same lock ID.
        if way < 35 && self.mode == Mode::Exclusive {
            return self.foreign_try(resource, acquisition).await;
        }
        acquisition.request_id = Some(self.request.clone());
        acquisition.mode = self.mode;
        let call = if way < 60 {
            Call::Try(acquisition)
        } else {
            Call::Lock { acquisition, wait_ms: self.client.rng.u64(2_000..16_000) }
        };
        self.client.anywhere().call(resource, call, None).await.map(drop)
    }

    async fn unlock(&mut self, resource: &str) -> anyhow::Result<()> {
        let call = Call::Unlock { lock_id: self.owner.clone() };
        self.client.anywhere().call(resource, call, None).await.map(drop)
    }

    async fn foreign_try(
        &mut self,
        resource: &str,
        acquisition: Acquisition,
    ) -> anyhow::Result<()> {
        let (owner, ttl_ms) = (self.owner.clone(), acquisition.ttl_ms);
        let connection = self.connect().await;
        let outcome = async {
            let Some(mut connection) = connection else { return not_reached() };
            let mut set = cmd("SET");
            set.arg(resource).arg(&owner).arg("NX").arg("PX").arg(ttl_ms);
            let answer = timeout(ANSWER_WITHIN, set.query_async(&mut connection)).await;
            let set: Option<String> = match answer {
                Ok(Ok(answer)) => answer,
                _ => return lost(),
            };
            if set.is_none() {
                return Outcome::Locked;
            }
            let ttl_ns = ttl_ms * 1_000_000;
            Outcome::Granted(Granted { lock_id: owner, ttl_ns, ..Granted::default() })
        };
        let call = Call::ForeignTry(acquisition);
        let outcome = self.client.caller.record(resource, &call, None, outcome).await?;
        self.look(&outcome);
        Ok(())
    }

    async fn foreign_unlock(&mut self, resource: &str) -> anyhow::Result<()> {
        let owner = self.owner.clone();
        let call = match self.mode {
            Mode::Exclusive => Call::Unlock { lock_id: owner.clone() },
            // The key of a shared lock has no lock ID, so that it finds nothing.
            Mode::Shared => Call::UnlockWrong { lock_id: format!("foreign {owner}") },
        };
        let connection = self.connect().await;
        let outcome = async {
            let Some(mut connection) = connection else { return not_reached() };
            let script = Script::new(DAPRD_UNLOCK);
            let mut script = script.key(resource);
            script.arg(&owner);
            match timeout(ANSWER_WITHIN, script.invoke_async(&mut connection)).await {
                Ok(Ok(1)) => Outcome::Unlocked,
                Ok(Ok(answer)) => Outcome::NotHeld { held: Some(answer == -2) },
                _ => lost(),
            }
        };
        let outcome = self.client.caller.record(resource, &call, None, outcome).await?;
        self.look(&outcome);
        Ok(())
    }

    /// Discards the connection after a failure.
    fn look(&mut self, outcome: &Outcome) {
        if matches!(outcome, Outcome::Unknown(_)) {
            self.connection = None;
        }
    }

    async fn connect(&mut self) -> Option<MultiplexedConnection> {
        if self.connection.is_none() {
            let connect = self.server.get_multiplexed_async_connection();
            self.connection = timeout(ANSWER_WITHIN, connect).await.ok().and_then(Result::ok);
        }
        self.connection.clone()
    }

    fn random_id(&mut self) -> String {
        let mut bytes = [0; 16];
        self.client.rng.fill(&mut bytes);
        Builder::from_random_bytes(bytes).into_uuid().to_string()
    }
}

fn not_reached() -> Outcome {
    Outcome::Refused(crate::history::NOT_SENT.into())
}

fn lost() -> Outcome {
    Outcome::Unknown("no answer".into())
}
