//! Faults of leasehold itself.

use anyhow::bail;

use super::{
    Done, Voids,
    pick::{duration_ms, last, outage},
};
use crate::world::{Backend, World};

pub(super) const NAMES: &[&str] = &[
    "leasehold-killed",
    "leasehold-suspended",
    "leasehold-machine-suspended",
    "leasehold-restarted",
];
/// Faults of worlds with several processes.
pub(super) const IN_TURN: &[&str] = &["leasehold-restarted-in-turn"];
/// Faults of worlds in which each process has proxies of its own.
pub(super) const VANISHED: &[&str] = &["leasehold-vanished"];

pub(super) async fn inject(
    world: &mut World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    // With a backend, a restart loses nothing.
    let restart_voids =
        if world.backend() == Backend::Memory { Voids::Grants } else { Voids::Nothing };
    let number = rng.usize(0..world.leaseholds.len());
    let leasehold = &mut world.leaseholds[number];
    // A crash must not be mistaken for this fault.
    leasehold.has_not_crashed()?;
    match name {
        "leasehold-killed" | "leasehold-vanished" => {
            let down = duration_ms(rng, 0..=1_500);
            if name == "leasehold-killed" {
                world.kill_leasehold(number).await?;
            } else {
                world.vanish_leasehold(number).await?;
            }
            last(down).await;
            world.start_again().await?;
            let name = &world.leaseholds[number].name;
            let detail = format!("{name} ended, started again after {down:?}");
            Ok(Done { detail, voids: restart_voids })
        }
        "leasehold-suspended" => {
            let during = outage(rng);
            leasehold.suspend()?;
            last(during).await;
            leasehold.resume()?;
            Ok(Done::harmless(format!("{} suspended for {during:?}", leasehold.name)))
        }
        "leasehold-machine-suspended" => {
            let during = outage(rng);
            leasehold.sleep(during).await?;
            Ok(Done::harmless(format!("that of {}, for {during:?}", leasehold.name)))
        }
        "leasehold-restarted-in-turn" => {
            for number in 0..world.leaseholds.len() {
                let leasehold = &mut world.leaseholds[number];
                leasehold.drain().await?;
                leasehold.start()?;
                leasehold.ready().await?;
            }
            Ok(Done::harmless("all processes drained and started again"))
        }
        "leasehold-restarted" => {
            leasehold.drain().await?;
            let detail = format!("{} drained and started again", leasehold.name);
            world.start_again().await?;
            Ok(Done { detail, voids: restart_voids })
        }
        _ => bail!("unknown"),
    }
}
