//! Faults of the connections between leasehold and its backend. None of them
//! ends a grant.

use std::time::Duration;

use anyhow::bail;
use futures_util::future::join_all;
use leasehold_testkit::proxy::{Admission, Conduct, Flow, Proxy};
use tokio::time::{Instant, timeout};

use super::{
    Done,
    pick::{duration_ms, last, outage},
};
use crate::world::{Store, World};

pub(super) const NAMES: &[&str] = &[
    "network-partitioned",
    "network-cut",
    "network-cut-in-request",
    "network-cut-in-reply",
    "network-delayed",
    "network-requests-lost",
    "network-replies-lost",
    "network-replies-late",
    "network-half-open",
];
/// Faults of worlds in which the proxies have no other clients than leasehold.
pub(super) const VANISHED: &[&str] = &["network-peer-vanished"];

/// How long a connection that lost bytes is kept open.
const LOSS_MS: std::ops::RangeInclusive<u64> = 50..=2_500;

/// By when each silent connection must have been given up: requests time out
/// within 5 s, and pings detect it otherwise.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15);

pub(super) async fn inject(
    world: &World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    let (proxies, whose) = choose(world, rng);
    let (conduct, during) = match name {
        "network-partitioned" => (Conduct::partition(), outage(rng)),
        "network-cut" => {
            let refuse = Conduct { admission: Admission::Refuse, ..Conduct::default() };
            (refuse, duration_ms(rng, 0..=1_500))
        }
        "network-cut-in-request" => {
            let requests = Flow::CutAfter(rng.u64(1..4_000));
            (Conduct { requests, ..Conduct::default() }, duration_ms(rng, 100..=1_000))
        }
        "network-cut-in-reply" => {
            let replies = Flow::CutAfter(rng.u64(1..4_000));
            (Conduct { replies, ..Conduct::default() }, duration_ms(rng, 100..=1_000))
        }
        "network-delayed" => {
            let by = Flow::Delay(duration_ms(rng, 5..=300));
            let late = Conduct { requests: by, replies: by, ..Conduct::default() };
            (late, duration_ms(rng, 500..=3_000))
        }
        "network-requests-lost" => {
            let lost = Conduct { requests: Flow::Swallow, ..Conduct::default() };
            (lost, duration_ms(rng, LOSS_MS))
        }
        "network-replies-lost" => {
            let lost = Conduct { replies: Flow::Swallow, ..Conduct::default() };
            (lost, duration_ms(rng, LOSS_MS))
        }
        "network-replies-late" => {
            (Conduct { replies: Flow::Stall, ..Conduct::default() }, outage(rng))
        }
        "network-half-open" => {
            let mute = Conduct { admission: Admission::HalfOpen, ..Conduct::default() };
            (mute, outage(rng))
        }
        "network-peer-vanished" => (Conduct::default(), Duration::ZERO),
        _ => bail!("unknown"),
    };
    let mut detail = format!("{whose}, {during:?}: {conduct:?}");
    for proxy in &proxies {
        proxy.set(conduct.clone());
        match name {
            "network-cut" | "network-half-open" => proxy.cut(),
            "network-peer-vanished" => proxy.vanish(),
            _ => {}
        }
    }
    last(during).await;
    if name == "network-peer-vanished" {
        // Until then, all sent bytes are lost.
        let since = Instant::now();
        let given_up = join_all(proxies.iter().map(|proxy| proxy.given_up()));
        if timeout(GIVEN_UP_AFTER, given_up).await.is_err() {
            bail!("{whose} kept a connection that was silent for {GIVEN_UP_AFTER:?}");
        }
        detail = format!("{whose}, given up after {:?}", since.elapsed());
    }
    for proxy in &proxies {
        proxy.heal();
    }
    Ok(Done::harmless(detail))
}

/// All connections of one process, one of them, or all connections of all processes. In a Cluster
/// all connections to one node, or to all.
fn choose<'a>(world: &'a World, rng: &mut fastrand::Rng) -> (Vec<&'a Proxy>, String) {
    if let Store::RedisCluster(cluster) = &world.store {
        let all: Vec<_> = cluster.proxies().collect();
        if rng.u8(0..4) == 0 {
            return (all, "every node".to_owned());
        }
        let node = rng.usize(0..all.len());
        return (vec![all[node]], format!("node {node}"));
    }
    if rng.u8(0..4) == 0 {
        let all = world.processes().flat_map(|leasehold| &leasehold.proxies).collect();
        return (all, "every process".to_owned());
    }
    let processes: Vec<_> = world.processes().collect();
    let leasehold = processes[rng.usize(0..processes.len())];
    let ways = leasehold.proxies.len();
    if ways > 1 && rng.bool() {
        let way = rng.usize(0..ways);
        return (vec![&leasehold.proxies[way]], format!("{} to server {way}", leasehold.name));
    }
    (leasehold.proxies.iter().collect(), leasehold.name.clone())
}
