//! Faults of fronts and of the connections of their clients. None of them ends a grant.

use anyhow::bail;
use leasehold_testkit::proxy::{Admission, Conduct, Flow};

use super::{
    Done,
    pick::{duration_ms, last, outage},
};
use crate::world::{Backend, World};

/// Faults of a front's process.
const OF_PROCESSES: &[&str] = &["front-killed", "front-suspended", "front-restarted"];
/// Faults of its clients' connections.
const OF_CONNECTIONS: &[&str] = &[
    "front-connections-reset",
    "front-connections-closed",
    "front-refused",
    "front-cut-in-request",
    "front-cut-in-reply",
    "front-requests-lost",
    "front-replies-lost",
    "front-replies-late",
];

/// How long a connection that lost bytes is kept open: often longer than a client waits.
const LOSS_MS: std::ops::RangeInclusive<u64> = 50..=4_000;

/// The names of faults of fronts on this backend; none on memory.
pub(crate) fn names(backend: Backend) -> impl Iterator<Item = &'static str> {
    let all = OF_PROCESSES.iter().chain(OF_CONNECTIONS).copied();
    all.filter(move |_| backend != Backend::Memory)
}

/// Whether a fault is one of fronts.
pub(super) fn knows(name: &str) -> bool {
    OF_PROCESSES.contains(&name) || OF_CONNECTIONS.contains(&name)
}

pub(super) async fn inject(
    world: &mut World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    anyhow::ensure!(!world.fronts.is_empty(), "the world has no front");
    let number = rng.usize(0..world.fronts.len());
    let detail = if OF_PROCESSES.contains(&name) {
        to_process(world, number, name, rng).await?
    } else {
        to_connections(world, number, name, rng).await?
    };
    Ok(Done::harmless(format!("front {number} {detail}")))
}

async fn to_process(
    world: &mut World,
    number: usize,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<String> {
    let process = &mut world.fronts[number].process;
    process.has_not_crashed()?;
    Ok(match name {
        "front-killed" => {
            let down = duration_ms(rng, 0..=1_500);
            world.kill_front(number).await?;
            last(down).await;
            world.start_again().await?;
            format!("killed, started again after {down:?}")
        }
        "front-suspended" => {
            let during = outage(rng);
            process.suspend()?;
            last(during).await;
            process.resume()?;
            format!("suspended for {during:?}")
        }
        "front-restarted" => {
            process.drain().await?;
            world.start_again().await?;
            "drained and started again".to_owned()
        }
        _ => bail!("unknown"),
    })
}

async fn to_connections(
    world: &World,
    number: usize,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<String> {
    let way = &world.fronts[number].way;
    let (conduct, during) = match name {
        // Several times, so that it meets calls at different moments.
        "front-connections-reset" | "front-connections-closed" => {
            let times = rng.u32(1..40);
            for _ in 0..times {
                if name == "front-connections-reset" {
                    way.reset();
                } else {
                    way.cut();
                }
                last(duration_ms(rng, 1..=40)).await;
            }
            return Ok(format!("{times} times"));
        }
        "front-refused" => {
            way.cut();
            let refuse = Conduct { admission: Admission::Refuse, ..Conduct::default() };
            (refuse, duration_ms(rng, 0..=1_500))
        }
        "front-cut-in-request" => {
            let requests = Flow::CutAfter(rng.u64(1..600));
            (Conduct { requests, ..Conduct::default() }, duration_ms(rng, 100..=1_000))
        }
        "front-cut-in-reply" => {
            let replies = Flow::CutAfter(rng.u64(1..200));
            (Conduct { replies, ..Conduct::default() }, duration_ms(rng, 100..=1_000))
        }
        "front-requests-lost" => {
            let lost = Conduct { requests: Flow::Swallow, ..Conduct::default() };
            (lost, duration_ms(rng, LOSS_MS))
        }
        "front-replies-lost" => {
            let lost = Conduct { replies: Flow::Swallow, ..Conduct::default() };
            (lost, duration_ms(rng, LOSS_MS))
        }
        "front-replies-late" => {
            (Conduct { replies: Flow::Stall, ..Conduct::default() }, outage(rng))
        }
        _ => bail!("unknown"),
    };
    let detail = format!("{during:?}: {conduct:?}");
    way.set(conduct);
    last(during).await;
    // A connection that lost bytes ends by a reset or by a close.
    if rng.bool() {
        way.reset();
    }
    way.heal();
    Ok(detail)
}
