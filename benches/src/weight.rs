//! Start-up time and memory of the process: at its start, with a million held locks, and
//! after them.

use std::time::Duration;

use anyhow::Result;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Options,
    client::Client,
    process::rss_mib,
    report::{median, row, table},
    servers::Component,
};

const LOCKS: usize = 1_000_000;
const CALLERS: usize = 64;
/// How long an allocator may take to return memory.
const SETTLE: Duration = Duration::from_secs(15);

/// Start-up time and memory on the memory store.
pub(crate) async fn memory(options: &Options) -> Result<()> {
    table("Weight, memory store", &["what", "figure"]);
    let mut starts_ms = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let component = Component::leasehold(&options.leasehold, "memory").await?;
        starts_ms.push(started.elapsed().as_secs_f64() * 1e3);
        drop(component);
    }
    row(&["start to connectable, median of 5".into(), format!("{:.0} ms", median(starts_ms))]);

    let component = Component::leasehold(&options.leasehold, "memory").await?;
    let client = Client::connect(&component.socket, &[("ttl", "1h")]).await?;
    let at_start = rss_mib(component.pid()?)?;
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = client.clone();
        tasks.spawn(async move {
            let mut held = Vec::new();
            for n in (caller..LOCKS).step_by(CALLERS) {
                let resource = format!("held-{n}");
                let granted = client.try_lock_for(&resource, 3600).await?;
                held.push((resource, granted.lock_id));
            }
            anyhow::Ok(held)
        });
    }
    let held: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let full = rss_mib(component.pid()?)?;
    let mut tasks = JoinSet::new();
    for held in held {
        let mut client = client.clone();
        tasks.spawn(async move {
            for (resource, lock_id) in held {
                client.unlock(&resource, lock_id).await?;
            }
            anyhow::Ok(())
        });
    }
    for released in tasks.join_all().await {
        released?;
    }
    let give_up = Instant::now() + SETTLE;
    let mut after = rss_mib(component.pid()?)?;
    while after > at_start + 50.0 && Instant::now() < give_up {
        tokio::time::sleep(Duration::from_millis(250)).await;
        after = rss_mib(component.pid()?)?;
    }
    row(&["RSS at start".into(), format!("{at_start:.0} MiB")]);
    row(&[format!("RSS with {LOCKS} held locks"), format!("{full:.0} MiB")]);
    row(&["RSS after their release".into(), format!("{after:.0} MiB")]);
    Ok(())
}
