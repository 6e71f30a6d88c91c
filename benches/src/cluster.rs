//! Cycles on a Redis Cluster of three masters, beside one master, each with a replica.

use anyhow::{Context as _, Result};
use leasehold_testkit::{redis::RedisServer, redis_cluster::RedisCluster};

use crate::{
    Options,
    client::Client,
    cycles,
    process::cpu_seconds,
    report::{Figures, median, median_of, row, table},
    servers::Component,
};

const MASTERS: usize = 3;

/// leasehold, and the masters that it calls.
struct Side {
    leasehold: Component,
    client: Client,
    masters: Vec<u32>,
}

/// One measurement.
struct Round {
    figures: Figures,
    /// Processor time of a cycle, in microseconds.
    leasehold_us: f64,
    /// The same of all masters.
    masters_us: f64,
}

/// leasehold on a Cluster beside leasehold on one master.
pub(crate) async fn compare(options: &Options) -> Result<()> {
    table(
        "Redis: lock and unlock on three masters beside one, a replica each, cycles/s (medians)",
        &[
            "callers",
            "three masters",
            "one master",
            "three/one",
            "leasehold, µs of processor time a cycle: three, one",
            "masters, µs a cycle: three, one",
        ],
    );
    let cluster = RedisCluster::start(MASTERS, 1);
    let one = RedisServer::start();
    let port = one.port().to_string();
    let _replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let (list, address) = (cluster.list(), one.address());
    let three = [("redisType", "cluster"), ("redisHost", &*list)];
    let three = Side::start(options, &three, cluster.nodes.iter().take(MASTERS)).await?;
    let one = Side::start(options, &[("redisHost", &*address)], [&one]).await?;
    for &callers in &options.callers {
        let (mut on_three, mut on_one) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            on_three.push(three.measure(options, callers).await?);
            on_one.push(one.measure(options, callers).await?);
        }
        let pairs = on_three.iter().zip(&on_one);
        let ratio = median(pairs.map(|(a, b)| a.figures.rate / b.figures.rate).collect());
        let rate = |rounds: &[Round]| format!("{:.0}", median_of(rounds, |it| it.figures.rate));
        let both = |figure: fn(&Round) -> f64| {
            format!("{:.0}, {:.0}", median_of(&on_three, figure), median_of(&on_one, figure))
        };
        row(&[
            callers.to_string(),
            rate(&on_three),
            rate(&on_one),
            format!("{ratio:.2}"),
            both(|round| round.leasehold_us),
            both(|round| round.masters_us),
        ]);
    }
    Ok(())
}

impl Side {
    async fn start(
        options: &Options,
        properties: &[(&str, &str)],
        masters: impl IntoIterator<Item = &RedisServer>,
    ) -> Result<Self> {
        let leasehold = Component::leasehold(&options.leasehold, "redis").await?;
        let client = Client::connect(&leasehold.socket, properties).await?;
        let pid = |master: &RedisServer| master.process.id().context("a master has ended");
        let masters = masters.into_iter().map(pid).collect::<Result<_>>()?;
        Ok(Self { leasehold, client, masters })
    }

    async fn measure(&self, options: &Options, callers: usize) -> Result<Round> {
        let used_s = || -> Result<(f64, f64)> {
            let masters =
                self.masters.iter().map(|pid| cpu_seconds(*pid)).sum::<Result<f64>>()?;
            Ok((cpu_seconds(self.leasehold.pid()?)?, masters))
        };
        let (leasehold_s, masters_s) = used_s()?;
        let figures = cycles::measure(&self.client, callers, options.duration()).await?;
        let (leasehold_now_s, masters_now_s) = used_s()?;
        let of_a_cycle = |seconds: f64| seconds * 1e6 / figures.cycles();
        let leasehold_us = of_a_cycle(leasehold_now_s - leasehold_s);
        let masters_us = of_a_cycle(masters_now_s - masters_s);
        Ok(Round { figures, leasehold_us, masters_us })
    }
}
