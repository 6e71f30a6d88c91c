//! Failovers by Sentinels. What the promoted replica had not received is lost.

use std::time::Duration;

use anyhow::bail;

use super::{
    Done,
    pick::{duration_ms, last, outage},
};
use crate::world::deployment::{Deployment, SENTINELS};

/// The ways to make Sentinels promote a replica.
pub(crate) const WAYS: &[&str] = &[
    "sentinel-failover-ordered",
    "sentinel-master-killed",
    "sentinel-master-suspended",
    "sentinel-master-cut-off",
];
/// One of these ways, after the replicas have missed something.
pub(crate) const BEHIND: &str = "sentinel-replicas-behind";
/// The others.
pub(super) const OTHERS: &[&str] = &[BEHIND, "sentinel-master-stalls", "sentinel-killed"];

/// For how long the replicas miss everything that is written.
const BEHIND_MS: std::ops::RangeInclusive<u64> = 100..=2_500;
/// For how long the former master may go on beside the new one; Sentinels end it after some
/// seconds.
const GOES_ON_MS: std::ops::RangeInclusive<u64> = 0..=8_000;

pub(super) async fn inject(
    deployment: &mut Deployment,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    if name == "sentinel-killed" {
        let (number, during) = (rng.usize(..SENTINELS), outage(rng));
        deployment.kill_sentinel(number);
        last(during).await;
        deployment.restart_sentinel(number)?;
        return Ok(Done::harmless(format!("Sentinel {number}, for {during:?}")));
    }
    // A failover needs replicas that are there.
    let master = deployment.whole().await?;
    if name == "sentinel-master-stalls" {
        let during = duration_ms(rng, 100..=3_000);
        deployment.server(master).suspend()?;
        last(during).await;
        deployment.server(master).resume()?;
        return Ok(Done::harmless(format!("server {master}, for {during:?}")));
    }
    let mut detail = format!("from server {master}");
    let how = if name == BEHIND {
        let during = duration_ms(rng, BEHIND_MS);
        for replica in Deployment::others(master) {
            deployment.cut_replica_off(replica).await?;
        }
        last(during).await;
        let how = WAYS[rng.usize(..WAYS.len())];
        detail += &format!(", whose replicas missed {during:?}, by {how}");
        how
    } else {
        name
    };
    let goes_on = duration_ms(rng, GOES_ON_MS);
    let new = fail_over(deployment, master, how, goes_on).await?;
    detail += &format!(", to server {new}");
    if how != "sentinel-master-killed" {
        detail += &format!(", which it may go on beside for {goes_on:?}");
    }
    Ok(Done::harmless(detail))
}

/// Returns the new master.
async fn fail_over(
    deployment: &mut Deployment,
    master: usize,
    how: &str,
    goes_on: Duration,
) -> anyhow::Result<usize> {
    match how {
        "sentinel-failover-ordered" => deployment.order_failover().await?,
        "sentinel-master-killed" => deployment.server(master).kill(),
        "sentinel-master-suspended" => deployment.server(master).suspend()?,
        "sentinel-master-cut-off" => deployment.server(master).cut_off(),
        _ => bail!("unknown"),
    }
    let new = deployment.failed_over(master).await?;
    match how {
        "sentinel-master-killed" => deployment.restart(master, new).await?,
        "sentinel-master-suspended" => deployment.server(master).resume()?,
        "sentinel-master-cut-off" => deployment.server(master).reunite(),
        _ => {}
    }
    if how != "sentinel-master-killed" {
        last(goes_on).await;
    }
    Ok(new)
}
