//! Failovers and moved slots of a Redis Cluster. What the promoted replica had not received is
//! lost.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::bail;

use super::{
    Done,
    pick::{duration_ms, last, outage},
};
use crate::world::redis_cluster::{RedisCluster, SHARDS, other_of};

/// The ways to make a replica a master.
pub(super) const WAYS: &[&str] = &[
    "cluster-failover-ordered",
    "cluster-failover-forced",
    "cluster-failover-taken-over",
    "cluster-master-killed",
    "cluster-master-suspended",
    "cluster-master-cut-off",
    "cluster-master-isolated",
];
/// Those of which the former master hears later.
const IN_THE_DARK: [&str; 3] =
    ["cluster-master-suspended", "cluster-master-cut-off", "cluster-master-isolated"];
/// One of these ways, after the replica has missed something.
pub(super) const BEHIND: &str = "cluster-replica-behind";
/// Faults of slots.
pub(super) const SLOTS: &[&str] = &["cluster-slots-moved", "cluster-slots-left-open"];
/// The others.
pub(super) const OTHERS: &[&str] = &[BEHIND, "cluster-master-stalls", "cluster-replica-killed"];

/// For how long the replica misses everything that is written.
const BEHIND_MS: RangeInclusive<u64> = 100..=2_500;
/// For how long the former master may not know of the new one.
const GOES_ON_MS: RangeInclusive<u64> = 0..=4_000;
/// For how long a master may stand still without being replaced.
const STALLS_MS: RangeInclusive<u64> = 100..=1_200;
/// For how long a slot is open.
const OPEN_MS: RangeInclusive<u64> = 100..=4_000;
/// For how long a slot is away.
const AWAY_MS: RangeInclusive<u64> = 0..=2_000;
/// How many slots are moved at most.
const MOVED_MAX: usize = 8;

pub(super) async fn inject(
    cluster: &mut RedisCluster,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    // Slots are where they belong, and replicas are there.
    let masters = cluster.whole().await?;
    let shard = rng.usize(..SHARDS);
    let master = masters[shard];
    let mut detail = format!("shard {shard} with node {master}");
    let how = match name {
        "cluster-master-stalls" => {
            let during = duration_ms(rng, STALLS_MS);
            cluster.node(master).suspend()?;
            last(during).await;
            cluster.node(master).resume()?;
            return Ok(Done::harmless(format!("{detail}, for {during:?}")));
        }
        "cluster-replica-killed" => {
            let (replica, during) = (other_of(master), outage(rng));
            cluster.node(replica).kill();
            last(during).await;
            cluster.restart(replica).await?;
            return Ok(Done::harmless(format!("{detail}, for {during:?}")));
        }
        _ if SLOTS.contains(&name) => return move_slots(cluster, shard, name, rng).await,
        BEHIND => {
            let during = duration_ms(rng, BEHIND_MS);
            cluster.cut_replica_off(master);
            last(during).await;
            // A replica replaces a master by an order only once it has everything.
            let how = WAYS[rng.usize(1..WAYS.len())];
            detail += &format!(", whose replica missed {during:?}, by {how}");
            how
        }
        _ => name,
    };
    let goes_on = duration_ms(rng, GOES_ON_MS);
    fail_over(cluster, master, how, goes_on).await?;
    if IN_THE_DARK.contains(&how) {
        detail += &format!(", which hears of it {goes_on:?} later");
    }
    Ok(Done::harmless(detail))
}

async fn fail_over(
    cluster: &mut RedisCluster,
    master: usize,
    how: &str,
    goes_on: Duration,
) -> anyhow::Result<()> {
    match how {
        "cluster-failover-ordered" => cluster.order_failover(master, &[]).await?,
        "cluster-failover-forced" => cluster.order_failover(master, &["FORCE"]).await?,
        "cluster-failover-taken-over" => cluster.order_failover(master, &["TAKEOVER"]).await?,
        "cluster-master-killed" => cluster.node(master).kill(),
        "cluster-master-suspended" => cluster.node(master).suspend()?,
        "cluster-master-cut-off" => {
            cluster.isolate(master);
            cluster.node(master).cut_off();
        }
        "cluster-master-isolated" => cluster.isolate(master),
        _ => bail!("unknown"),
    }
    cluster.failed_over(master).await?;
    if how == "cluster-master-killed" {
        cluster.restart(master).await?;
    }
    if IN_THE_DARK.contains(&how) {
        last(goes_on).await;
    }
    if how == "cluster-master-suspended" {
        cluster.node(master).resume()?;
    }
    cluster.reunite();
    Ok(())
}

/// Moves slots with locks from their shard to another, and back.
async fn move_slots(
    cluster: &mut RedisCluster,
    from: usize,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let to = (from + rng.usize(1..SHARDS)) % SHARDS;
    let mut slots = cluster.used_slots(from).await?;
    rng.shuffle(&mut slots);
    slots.truncate(rng.usize(1..=MOVED_MAX));
    for slot in &slots {
        cluster.begin_visit(*slot, to);
    }
    let mut detail = format!("{slots:?} from shard {from} to {to}");
    if name == "cluster-slots-left-open" {
        for slot in &slots {
            cluster.open_slot(*slot, from, to, rng.f64()).await?;
        }
        let open = duration_ms(rng, OPEN_MS);
        last(open).await;
        detail += &format!(", open for {open:?}");
    }
    for slot in &slots {
        cluster.move_slot(*slot, from, to).await?;
    }
    let away = duration_ms(rng, AWAY_MS);
    last(away).await;
    for slot in &slots {
        cluster.move_slot(*slot, to, from).await?;
    }
    cluster.end_visits();
    Ok(Done::harmless(format!("{detail}, away for {away:?}")))
}
