//! Uncontended lock and unlock, as many cycles as callers can make.

use std::{path::Path, time::Duration};

use anyhow::Result;
use leasehold_testkit::redis::RedisServer;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Options,
    client::Client,
    report::{Figures, histogram, median, median_of, row, table},
    servers::Component,
};

/// A way to lock and unlock; clones share one connection.
pub(crate) trait Api: Clone + Send + 'static {
    /// Takes a lock that must be free. Returns what unlocks it.
    fn lock(&mut self, resource: &str) -> impl Future<Output = Result<String>> + Send;
    /// Releases it.
    fn unlock(
        &mut self,
        resource: &str,
        proof: String,
    ) -> impl Future<Output = Result<()>> + Send;
}

impl Api for Client {
    async fn lock(&mut self, resource: &str) -> Result<String> {
        Ok(self.try_lock(resource).await?.lock_id)
    }

    async fn unlock(&mut self, resource: &str, proof: String) -> Result<()> {
        Client::unlock(self, resource, proof).await
    }
}

/// Each caller acquires and releases its own lock.
pub(crate) async fn measure<A: Api>(
    api: &A,
    callers: usize,
    duration: Duration,
) -> Result<Figures> {
    let started = Instant::now();
    let end = started + duration;
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let mut api = api.clone();
        tasks.spawn(async move {
            let resource = format!("bench-{caller}");
            let mut latency_us = histogram();
            while Instant::now() < end {
                let asked = Instant::now();
                let proof = api.lock(&resource).await?;
                latency_us.saturating_record(asked.elapsed().as_micros().try_into()?);
                api.unlock(&resource, proof).await?;
            }
            anyhow::Ok(latency_us)
        });
    }
    let mut latency_us = histogram();
    while let Some(done) = tasks.join_next().await {
        latency_us.add(done??)?;
    }
    let cycles = f64::from(u32::try_from(latency_us.len())?);
    Ok(Figures { rate: cycles / started.elapsed().as_secs_f64(), latency_us })
}

/// Cycles through a component's socket, over one connection.
pub(crate) async fn through(
    socket: &Path,
    properties: &[(&str, &str)],
    callers: usize,
    duration: Duration,
) -> Result<Figures> {
    measure(&Client::connect(socket, properties).await?, callers, duration).await
}

/// leasehold on Redis beside the two smallest scripts and the no-op service.
pub(crate) async fn redis(options: &Options) -> Result<()> {
    table(
        "Redis: lock and unlock through the socket, cycles/s (medians)",
        &[
            "callers",
            "leasehold",
            "acquire p50/p99 ms",
            "bare scripts",
            "no-op",
            "leasehold/bare",
        ],
    );
    let redis = RedisServer::start();
    let leasehold = Component::leasehold(&options.leasehold, "redis").await?;
    let bare = Component::bare(&["--redis", &redis.url()]).await?;
    let noop = Component::bare(&[]).await?;
    let host = redis.address();
    let properties = [("redisHost", host.as_str())];
    for &callers in &options.callers {
        let (mut ours, mut theirs, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let time = options.duration();
            ours.push(through(&leasehold.socket, &properties, callers, time).await?);
            theirs.push(through(&bare.socket, &[], callers, time).await?);
            nothing.push(through(&noop.socket, &[], callers, time).await?);
        }
        let ratios = ours.iter().zip(&theirs).map(|(a, b)| a.rate / b.rate).collect();
        row(&[
            callers.to_string(),
            format!("{:.0}", median_of(&ours, |f| f.rate)),
            format!(
                "{:.2}/{:.2}",
                median_of(&ours, |f| f.ms(0.5)),
                median_of(&ours, |f| f.ms(0.99))
            ),
            format!("{:.0}", median_of(&theirs, |f| f.rate)),
            format!("{:.0}", median_of(&nothing, |f| f.rate)),
            format!("{:.2}", median(ratios)),
        ]);
    }
    Ok(())
}
