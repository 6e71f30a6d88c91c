//! A front for clients of Redis.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use leasehold_testkit::{
    leasehold::front_address, lock_scripts::RELEASE, proxy::Proxy, wait::eventually,
};
use redis::{Script, cmd};
use tokio::time::timeout;
use uuid::Uuid;

use super::leasehold::Leasehold;

/// How soon it must listen: it connects to its backend first.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// How soon it must serve once its backend answers.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// A front, and the proxy of its clients.
#[derive(Debug)]
pub struct Front {
    /// Its process.
    pub(crate) process: Leasehold,
    /// The proxy of its clients, with the same address after a restart.
    pub(crate) way: Proxy,
}

impl Front {
    /// A front with a proxy that does not lead to its port yet.
    pub(super) async fn new(process: Leasehold) -> Self {
        // Nobody listens there.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        Self { process, way: Proxy::start_passing_resets(nowhere).await }
    }

    /// Starts its process if it does not run, and leads clients to its port.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        let process = &mut self.process;
        process.start()?;
        let what = format!("{} listens for clients of Redis", process.name);
        let address = eventually(LISTENS_WITHIN, &what, async || {
            process.has_not_crashed()?;
            front_address(&process.log_since_start()?).context("it does not listen yet")
        })
        .await?;
        self.way.lead_to(address);
        Ok(())
    }

    /// Returns once it locks and unlocks.
    pub(super) async fn ready(&self) -> anyhow::Result<()> {
        let server = redis::Client::open(format!("redis://{}/", self.way.address()))?;
        eventually(SERVES_WITHIN, "a front serves", async || {
            timeout(ANSWER_WITHIN, cycle(&server)).await.context("no answer")?
        })
        .await
    }
}

async fn cycle(server: &redis::Client) -> anyhow::Result<()> {
    let mut connection = server.get_multiplexed_async_connection().await?;
    let id = Uuid::new_v4().simple().to_string();
    let resource = format!("probe-{id}");
    let mut set = cmd("SET");
    set.arg(&resource).arg(&id).arg(&["NX", "PX", "2000"]);
    set.exec_async(&mut connection).await?;
    let released: i64 =
        Script::new(RELEASE).key(&resource).arg(&id).invoke_async(&mut connection).await?;
    anyhow::ensure!(released == 1, "its release was answered {released}");
    Ok(())
}
