//! What is done to leasehold itself.

use anyhow::bail;

use super::{
    Done, Voids,
    pick::{duration_ms, last, outage},
};
use crate::world::{Backend, World};

pub(super) const NAMES: &[&str] =
    &["leasehold-killed", "leasehold-suspended", "leasehold-restarted"];

pub(super) async fn inject(
    world: &mut World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    // On a backend nothing is kept that a restart would need.
    let restart_voids =
        if world.backend() == Backend::Memory { Voids::Grants } else { Voids::Nothing };
    let number = rng.usize(0..world.leaseholds.len());
    let leasehold = &mut world.leaseholds[number];
    // What crashed is not to pass for what this is about to end.
    leasehold.has_not_crashed()?;
    match name {
        "leasehold-killed" => {
            let down = duration_ms(rng, 0..=1_500);
            world.kill_leasehold(number).await?;
            last(down).await;
            world.start_again().await?;
            let name = &world.leaseholds[number].name;
            let detail = format!("{name} killed, started again after {down:?}");
            Ok(Done { detail, voids: restart_voids })
        }
        "leasehold-suspended" => {
            let during = outage(rng);
            leasehold.suspend()?;
            last(during).await;
            leasehold.resume()?;
            Ok(Done::harmless(format!("{} suspended for {during:?}", leasehold.name)))
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
