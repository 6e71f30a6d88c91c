//! Shared locks: cycles of readers, and how fast a queue of readers is granted.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Options,
    client::Client,
    cycles::{self, Api},
    report::{median, median_of, row, table},
    stores::{Served, each_store},
};

/// How many readers wait behind a writer.
const WAITERS: usize = 1000;
/// How long they have to enter the queue.
const SETTLE: Duration = Duration::from_secs(3);

/// Shared grants beside exclusive ones, on each of these stores.
pub(crate) async fn compare(options: &Options, stores: &[impl AsRef<str>]) -> Result<()> {
    each_store(options, stores, async |store| {
        let Served { client, .. } = &store.serve(&options.leasehold).await?;
        cycles_table(options, &store.title, client).await?;
        if !options.only_cycles {
            waits_table(options, &store.title, client).await?;
        }
        Ok(())
    })
    .await
}

/// Acquires and releases shared grants.
#[derive(Clone)]
struct Reader {
    client: Client,
    /// The resource of all callers; `None` if each has its own.
    one: Option<&'static str>,
}

impl Api for Reader {
    async fn lock(&mut self, resource: &str) -> Result<String> {
        let resource = self.one.unwrap_or(resource);
        Ok(self.client.try_share(resource).await?.lock_id)
    }

    async fn unlock(&mut self, resource: &str, proof: String) -> Result<()> {
        Client::unlock(&mut self.client, self.one.unwrap_or(resource), proof).await
    }
}

async fn cycles_table(options: &Options, title: &str, client: &Client) -> Result<()> {
    table(
        &format!("{title}: shared lock and unlock through the socket, cycles/s (medians)"),
        &[
            "callers",
            "exclusive",
            "acquire p50/p99 ms",
            "shared, a resource each",
            "acquire p50/p99 ms",
            "shared, one resource",
            "acquire p50/p99 ms",
            "shared/exclusive: each, one",
        ],
    );
    let each = Reader { client: client.clone(), one: None };
    let together = Reader { client: client.clone(), one: Some("bench-shared") };
    for &callers in &options.callers {
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            let time = options.duration();
            runs[0].push(cycles::measure(client, callers, time).await?);
            runs[1].push(cycles::measure(&each, callers, time).await?);
            runs[2].push(cycles::measure(&together, callers, time).await?);
        }
        let [exclusive, each, together] = &runs;
        let ratio = |shared: &[crate::report::Figures]| {
            let pairs = shared.iter().zip(exclusive);
            median(pairs.map(|(shared, exclusive)| shared.rate / exclusive.rate).collect())
        };
        let mut cells = vec![callers.to_string()];
        for figures in &runs {
            cells.push(format!("{:.0}", median_of(figures, |f| f.rate)));
            cells.push(format!(
                "{:.2}/{:.2}",
                median_of(figures, |f| f.ms(0.5)),
                median_of(figures, |f| f.ms(0.99))
            ));
        }
        cells.push(format!("{:.2}, {:.2}", ratio(each), ratio(together)));
        row(&cells);
    }
    Ok(())
}

async fn waits_table(options: &Options, title: &str, client: &Client) -> Result<()> {
    table(
        &format!("{title}: readers that wait behind a writer, ms after its unlock (medians)"),
        &["readers", "first granted", "half of them", "all"],
    );
    let (mut first, mut half, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let waits_ms = let_in(client).await?;
        first.push(waits_ms[0]);
        half.push(waits_ms[WAITERS / 2 - 1]);
        all.push(waits_ms[WAITERS - 1]);
    }
    let ms = |values| format!("{:.0}", median(values));
    row(&[WAITERS.to_string(), ms(first), ms(half), ms(all)]);
    Ok(())
}

/// How many ms after a writer's unlock was sent each reader behind it was granted, in
/// order. None of them unlocks before all hold.
async fn let_in(client: &Client) -> Result<Vec<f64>> {
    let resource = "bench-readers";
    let mut writer = client.clone();
    let held = writer.try_lock(resource).await?;
    let mut waits = JoinSet::new();
    for _ in 0..WAITERS {
        let mut reader = client.clone();
        waits.spawn(async move {
            let granted = reader.share(resource).await?;
            anyhow::Ok((Instant::now(), granted.lock_id))
        });
    }
    tokio::time::sleep(SETTLE).await;
    let released = Instant::now();
    writer.unlock(resource, held.lock_id).await?;
    let mut waits_ms = Vec::new();
    let mut granted = Vec::new();
    while let Some(reader) = waits.join_next().await {
        let (at, lock_id) = reader?.context("a reader that waited")?;
        waits_ms.push(at.saturating_duration_since(released).as_secs_f64() * 1e3);
        granted.push(lock_id);
    }
    for lock_id in granted {
        writer.unlock(resource, lock_id).await?;
    }
    waits_ms.sort_by(f64::total_cmp);
    Ok(waits_ms)
}
