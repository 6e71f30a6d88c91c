//! One key and many waiters: each holds a millisecond and asks again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use leasehold_testkit::redis::RedisServer;
use tokio::{
    sync::Mutex,
    task::{JoinSet, spawn_blocking},
    time::Instant,
};

use crate::{
    Options,
    client::Client,
    redis_work::{Work, work},
    report::{Figures, histogram, median_of, row, table},
    servers::Component,
};

const WAITERS: [usize; 4] = [1, 10, 100, 10_000];
const HOLD: Duration = Duration::from_millis(1);

/// What all waiters of a run share.
#[derive(Default)]
struct Shared {
    /// When the last holder sent its unlock.
    released: Mutex<Option<Instant>>,
    /// Counts requests, so that each grant has the number of earlier ones.
    asked: AtomicU64,
    granted: AtomicU64,
    out_of_order: AtomicU64,
}

/// The result of a run.
pub(crate) struct Run {
    pub(crate) figures: Figures,
    pub(crate) grants: f64,
    /// In percent.
    out_of_order: f64,
}

/// One key, and one caller more than waiters, so that there is always a waiter.
pub(crate) async fn measure(
    client: &Client,
    waiters: usize,
    duration: Duration,
) -> Result<Run> {
    let shared = Arc::new(Shared::default());
    let started = Instant::now();
    let end = started + duration;
    let mut tasks = JoinSet::new();
    for _ in 0..=waiters {
        let (mut client, shared) = (client.clone(), Arc::clone(&shared));
        tasks.spawn(async move {
            let mut latency_us = histogram();
            while Instant::now() < end {
                let asked = shared.asked.fetch_add(1, Ordering::Relaxed);
                let granted = client.lock("bench-handover").await?;
                let received = Instant::now();
                if let Some(released) = shared.released.lock().await.take() {
                    let took = received.saturating_duration_since(released);
                    latency_us.saturating_record(took.as_micros().try_into()?);
                }
                let before = shared.granted.fetch_add(1, Ordering::Relaxed);
                // Concurrent requests may be applied in either order: only a
                // larger gap is out of order.
                if asked.abs_diff(before) > 2 {
                    shared.out_of_order.fetch_add(1, Ordering::Relaxed);
                }
                // The runtime's own timer would round a millisecond up to two.
                spawn_blocking(|| std::thread::sleep(HOLD)).await?;
                *shared.released.lock().await = Some(Instant::now());
                client.unlock("bench-handover", granted.lock_id).await?;
            }
            anyhow::Ok(latency_us)
        });
    }
    let mut latency_us = histogram();
    while let Some(done) = tasks.join_next().await {
        latency_us.add(done??)?;
    }
    let grants = shared.granted.load(Ordering::Relaxed) as f64;
    Ok(Run {
        figures: Figures { rate: grants / started.elapsed().as_secs_f64(), latency_us },
        grants,
        out_of_order: 100.0 * shared.out_of_order.load(Ordering::Relaxed) as f64 / grants,
    })
}

/// Hand-over on Redis, and what a grant costs its server.
pub(crate) async fn redis(options: &Options) -> Result<()> {
    table(
        "Redis: hand-over of one key, each holds 1 ms (medians)",
        &[
            "waiters",
            "grants/s",
            "hand-over p50/p99 ms",
            "out of order %",
            "commands a grant (in scripts counted)",
            "scripts a grant",
        ],
    );
    let redis = RedisServer::start();
    let leasehold = Component::leasehold(&options.leasehold, "redis").await?;
    let host = redis.address();
    let client = Client::connect(&leasehold.socket, &[("redisHost", &host)]).await?;
    let mut server =
        redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    for waiters in WAITERS {
        let (mut runs, mut order, mut used) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let before = work(&mut server).await?;
            let run = measure(&client, waiters, options.duration()).await?;
            used.push(per_grant(before, work(&mut server).await?, run.grants));
            runs.push(run.figures);
            order.push(run.out_of_order);
        }
        row(&[
            waiters.to_string(),
            format!("{:.0}", median_of(&runs, |f| f.rate)),
            format!(
                "{:.2}/{:.2}",
                median_of(&runs, |f| f.ms(0.5)),
                median_of(&runs, |f| f.ms(0.99))
            ),
            // The order is not meaningful: a burst of thousands is reordered before it is
            // sent.
            if waiters > 1000 {
                "unknown".to_owned()
            } else {
                format!("{:.1}", crate::report::median(order))
            },
            format!("{:.1}", crate::report::median(used.iter().map(|used| used.0).collect())),
            format!("{:.1}", crate::report::median(used.iter().map(|used| used.1).collect())),
        ]);
    }
    idle(&client, &mut server, options.duration()).await
}

fn per_grant(before: Work, after: Work, grants: f64) -> (f64, f64) {
    let all = (after.all - before.all) as f64;
    let scripts = (after.scripts - before.scripts) as f64;
    (all / grants, scripts / grants)
}

/// The cost of a hundred idle waiters.
async fn idle(
    client: &Client,
    server: &mut redis::aio::MultiplexedConnection,
    duration: Duration,
) -> Result<()> {
    let granted = client.clone().try_lock("bench-idle").await?;
    let waits = queue(client, "bench-idle", 100).await;
    let before = work(server).await?;
    tokio::time::sleep(duration).await;
    let after = work(server).await?;
    // The measurement itself is one command.
    let commands = (after.all - before.all).saturating_sub(1) as f64 / duration.as_secs_f64();
    println!("\n100 idle waiters: {commands:.1} commands/s, those inside scripts counted");
    drop(waits);
    client.clone().unlock("bench-idle", granted.lock_id).await
}

/// Waiters that stay until dropped.
pub(crate) async fn queue(
    client: &Client,
    resource: &'static str,
    waiters: usize,
) -> JoinSet<Result<()>> {
    let mut waits = JoinSet::new();
    for _ in 0..waiters {
        let mut client = client.clone();
        waits.spawn(async move { client.lock(resource).await.map(drop) });
    }
    // Time for the last one to enter the queue.
    tokio::time::sleep(Duration::from_millis(500)).await;
    waits
}
