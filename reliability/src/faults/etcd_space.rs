//! etcd that has reached its quota.

use std::time::Duration;

use anyhow::{Context as _, bail};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions,
};
use futures_util::future::join_all;
use leasehold_testkit::wait::eventually;
use tokio::time::{Instant, timeout};

use super::{
    Done,
    pick::{duration_ms, last},
};
use crate::world::etcd::EtcdCluster;

pub(super) const NAMES: &[&str] = &["etcd-out-of-space"];

/// The prefix of keys that fill it.
const JUNK: &str = "/junk/";
const JUNK_BYTES: usize = 700 * 1024;
const JUNK_AT_ONCE: usize = 4;
/// How much room the quota leaves: enough for the rest of a run once the junk
/// is gone.
const ROOM_BYTES: u64 = 24 * 1024 * 1024;
const FULL_WITHIN: Duration = Duration::from_secs(30);
const BETWEEN_MS: std::ops::RangeInclusive<u64> = 50..=400;

/// Fills etcd, and for a while disarms the alarm each time it is raised, so that
/// writes reach the quota itself. Then empties it as operators do: compaction,
/// defragmentation, disarming.
pub(super) async fn inject(
    etcd: &mut EtcdCluster,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let size = etcd.client().await?.status().await?.db_size();
    let quota = u64::try_from(size).unwrap_or_default() + ROOM_BYTES;
    etcd.set_quota(Some(quota)).await?;
    let mut client = etcd.client().await?;
    let (mut number, give_up) = (0, Instant::now() + FULL_WITHIN);
    while !fill(&client, &mut number).await {
        if Instant::now() >= give_up {
            bail!("etcd takes more than its quota of {quota} bytes");
        }
    }
    let during = duration_ms(rng, 300..=3_000);
    let until = Instant::now() + during;
    let mut disarmed = 0;
    while Instant::now() < until {
        last(duration_ms(rng, BETWEEN_MS)).await;
        disarm(&mut client).await?;
        disarmed += 1;
        fill(&client, &mut number).await;
    }
    empty(etcd, &mut client).await?;
    // This restarts the members, so it is part of the fault.
    etcd.set_quota(None).await?;
    Ok(Done::harmless(format!(
        "{quota} bytes, full for {during:?}, disarmed {disarmed} times meanwhile"
    )))
}

/// Whether there was no more room.
async fn fill(client: &Client, number: &mut u64) -> bool {
    let puts = (0..JUNK_AT_ONCE).map(|_| {
        *number += 1;
        let (mut client, key) = (client.clone(), format!("{JUNK}{number}"));
        async move { client.put(key, vec![b'x'; JUNK_BYTES], None).await }
    });
    join_all(puts)
        .await
        .into_iter()
        .any(|put| put.is_err_and(|why| why.to_string().contains("database space exceeded")))
}

async fn empty(etcd: &mut EtcdCluster, client: &mut Client) -> anyhow::Result<()> {
    let junk = DeleteOptions::new().with_prefix();
    let deleted = client.delete(JUNK, Some(junk)).await?;
    let revision = deleted.header().context("no header")?.revision();
    client.compact(revision, Some(CompactionOptions::new().with_physical())).await?;
    eventually(FULL_WITHIN, "etcd takes writes again", async || {
        // A member that has not compacted yet has no space to free.
        for member in etcd.members() {
            // The member stands still meanwhile.
            let mut client = member.client().await?;
            timeout(FULL_WITHIN, client.defragment()).await.context("defragmentation")??;
        }
        let mut client = client.clone();
        // A write in flight may have raised the alarm again.
        disarm(&mut client).await?;
        client.put(JUNK, "last", None).await?;
        client.delete(JUNK, None).await?;
        Ok(())
    })
    .await
}

async fn disarm(client: &mut Client) -> anyhow::Result<()> {
    let raised = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
    for alarm in raised.alarms() {
        let mut of_member = AlarmOptions::new();
        of_member.with_member(alarm.member_id());
        client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of_member)).await?;
    }
    Ok(())
}
