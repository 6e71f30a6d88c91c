//! Faults of etcd's members. Unless data are lost, all promises hold.

use std::time::Duration;

use anyhow::{Context as _, bail};
use leasehold_testkit::{
    proxy::{Admission, Conduct},
    wait::eventually,
};

use super::{
    Done, Voids,
    pick::{duration_ms, last, outage},
};
use crate::world::{
    etcd::{EtcdCluster, MEMBERS},
    leasehold::Leasehold,
};

pub(super) const NAMES: &[&str] = &[
    "etcd-leader-killed",
    "etcd-member-killed",
    "etcd-leader-suspended",
    "etcd-member-suspended",
    "etcd-leader-isolated",
    "etcd-member-isolated",
    "etcd-used-follower-killed",
    "etcd-used-follower-suspended",
    "etcd-restarted-in-turn",
    "etcd-all-down",
    "etcd-all-suspended",
    RESTORED,
];
/// Restored from a snapshot, so that the revision steps back.
const RESTORED: &str = "etcd-restored";
/// Restored from a snapshot with a bump of the revision.
pub(super) const RESTORED_BUMPED: &str = "etcd-restored-bumped";

/// How long before the fault the snapshot is taken.
const SINCE_SNAPSHOT_MS: std::ops::RangeInclusive<u64> = 20..=900;

/// How soon a process that lost its connection to one member uses another.
const MOVED_WITHIN: Duration = Duration::from_secs(10);

/// Whether the name is of a fault here.
pub(super) fn knows(name: &str) -> bool {
    NAMES.contains(&name) || name == RESTORED_BUMPED
}

pub(super) async fn inject(
    etcd: &mut EtcdCluster,
    leaseholds: &[Leasehold],
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let number = if name.starts_with("etcd-leader-") {
        etcd.leader().await?
    } else if name.starts_with("etcd-used-follower-") {
        used_follower(etcd, leaseholds, rng).await?
    } else {
        rng.usize(0..MEMBERS)
    };
    let during = outage(rng);
    let detail = format!("m{number} for {during:?}");
    match name {
        "etcd-leader-killed" | "etcd-member-killed" | "etcd-used-follower-killed" => {
            etcd.members()[number].kill();
            last(during).await;
            etcd.ready(number).await?;
            Ok(Done::harmless(detail))
        }
        "etcd-leader-suspended" | "etcd-member-suspended" | "etcd-used-follower-suspended" => {
            etcd.members()[number].suspend()?;
            last(during).await;
            etcd.members()[number].resume()?;
            Ok(Done::harmless(detail))
        }
        "etcd-leader-isolated" | "etcd-member-isolated" => {
            etcd.isolate(number);
            last(during).await;
            etcd.reunite();
            Ok(Done::harmless(detail))
        }
        "etcd-restarted-in-turn" => {
            let between = duration_ms(rng, 0..=1_000);
            for number in 0..MEMBERS {
                etcd.members()[number].kill();
                etcd.ready(number).await?;
                last(between).await;
            }
            Ok(Done::harmless(format!("{between:?} between members")))
        }
        "etcd-all-suspended" => {
            for member in etcd.members() {
                member.suspend()?;
            }
            last(during).await;
            for member in etcd.members() {
                member.resume()?;
            }
            Ok(Done::harmless(format!("for {during:?}")))
        }
        "etcd-all-down" => {
            kill_all(etcd).await;
            last(during).await;
            etcd.restart().await?;
            Ok(Done::harmless(format!("for {during:?}")))
        }
        RESTORED | RESTORED_BUMPED => {
            let bumped = name == RESTORED_BUMPED;
            let snapshot = etcd.snapshot().await?;
            let since = duration_ms(rng, SINCE_SNAPSHOT_MS);
            last(since).await;
            kill_all(etcd).await;
            etcd.restore(&snapshot, bumped).await?;
            let voids = if bumped { Voids::Grants } else { Voids::GrantsAndTokens };
            Ok(Done { detail: format!("to what was {since:?} before"), voids })
        }
        _ => bail!("unknown"),
    }
}

/// A member that does not lead, and that a leasehold process is connected to: one
/// that uses the leader is made to use another member first.
async fn used_follower(
    etcd: &EtcdCluster,
    leaseholds: &[Leasehold],
    rng: &mut fastrand::Rng,
) -> anyhow::Result<usize> {
    let ways = &leaseholds[rng.usize(..leaseholds.len())].proxies;
    let leader = etcd.leader().await?;
    let follower = || (0..MEMBERS).find(|it| *it != leader && ways[*it].connections() > 0);
    if let Some(follower) = follower() {
        return Ok(follower);
    }
    ways[leader].set(Conduct { admission: Admission::Refuse, ..Conduct::default() });
    ways[leader].cut();
    let moved = eventually(MOVED_WITHIN, "a process uses a follower", async || {
        follower().context("not yet")
    })
    .await;
    ways[leader].heal();
    moved
}

async fn kill_all(etcd: &mut EtcdCluster) {
    for member in etcd.members() {
        member.kill();
    }
}
