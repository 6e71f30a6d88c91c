//! Two builds of leasehold beside each other, on the same servers in turn: whether a
//! change has cost anything.

use std::path::Path;

use anyhow::Result;
use leasehold_testkit::{etcd::EtcdServer, redis::RedisServer};

use crate::{
    Options,
    client::Client,
    cycles,
    etcd::version,
    handover,
    report::{Figures, median, median_of, row, table},
    servers::Component,
};

const WAITERS: [usize; 2] = [1, 100];

/// Compares the build of `options` with `against`, on every backend.
pub(crate) async fn compare(options: &Options, against: &Path) -> Result<()> {
    table(
        "This build beside another, in turn (medians)",
        &["store", "load", "this, a second", "the other, a second", "this/other"],
    );
    on_store(options, against, "memory", "memory", &[]).await?;
    let redis = RedisServer::start();
    on_store(options, against, "redis", "Redis", &[("redisHost", &redis.address())]).await?;
    drop(redis);
    for binary in &options.etcd {
        let etcd = EtcdServer::launch(binary, &[]).await?;
        let title = format!("etcd {}", version(&etcd).await?);
        let properties = [("endpoints", etcd.address())];
        on_store(options, against, "etcd", &title, &properties).await?;
    }
    Ok(())
}

async fn on_store(
    options: &Options,
    against: &Path,
    store: &str,
    title: &str,
    properties: &[(&str, &str)],
) -> Result<()> {
    let this = Side::start(&options.leasehold, store, properties).await?;
    let other = Side::start(against, store, properties).await?;
    for &callers in &options.callers {
        let load = format!("lock and unlock, {callers} callers");
        let mut rounds = Rounds::default();
        for round in 0..options.rounds {
            let side = async |side: &Side| {
                cycles::measure(&side.client, callers, options.duration()).await
            };
            rounds.add(round, &this, &other, side).await?;
        }
        rounds.tell(title, &load);
    }
    for waiters in WAITERS {
        let load = format!("hand-over, {waiters} waiters");
        let mut rounds = Rounds::default();
        for round in 0..options.rounds {
            let side = async |side: &Side| {
                let run = handover::measure(&side.client, waiters, options.duration()).await?;
                Ok(run.figures)
            };
            rounds.add(round, &this, &other, side).await?;
        }
        rounds.tell(title, &load);
    }
    Ok(())
}

/// One build, serving.
struct Side {
    _server: Component,
    client: Client,
}

impl Side {
    async fn start(binary: &Path, store: &str, properties: &[(&str, &str)]) -> Result<Self> {
        let server = Component::leasehold(binary, store).await?;
        let client = Client::connect(&server.socket, properties).await?;
        Ok(Self { _server: server, client })
    }
}

/// What each side made, round by round.
#[derive(Default)]
struct Rounds {
    this: Vec<Figures>,
    other: Vec<Figures>,
}

impl Rounds {
    /// Measures both sides once. Each begins every other round, so that neither always
    /// follows the other.
    async fn add(
        &mut self,
        round: usize,
        this: &Side,
        other: &Side,
        measure: impl AsyncFn(&Side) -> Result<Figures>,
    ) -> Result<()> {
        if round.is_multiple_of(2) {
            self.this.push(measure(this).await?);
            self.other.push(measure(other).await?);
        } else {
            self.other.push(measure(other).await?);
            self.this.push(measure(this).await?);
        }
        Ok(())
    }

    fn tell(&self, store: &str, load: &str) {
        let pairs = self.this.iter().zip(&self.other);
        let ratios = pairs.map(|(this, other)| this.rate / other.rate).collect();
        row(&[
            store.to_owned(),
            load.to_owned(),
            format!("{:.0}", median_of(&self.this, |figures| figures.rate)),
            format!("{:.0}", median_of(&self.other, |figures| figures.rate)),
            format!("{:.2}", median(ratios)),
        ]);
    }
}
