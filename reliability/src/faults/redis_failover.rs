//! Another Redis server takes over, behind the address that leasehold knows.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::timeout;

use super::Done;
use crate::world::{Store, World};

pub(super) const NAMES: &[&str] = &["redis-failed-over"];

/// By when every process must have left the former master, which continues as a
/// replica: it still answers, but refuses writes.
const LEFT_WITHIN: Duration = Duration::from_secs(15);

pub(super) async fn inject(world: &mut World) -> anyhow::Result<Done> {
    let Store::Redis(redis) = &mut world.store else { bail!("not on Redis") };
    let former = redis.address();
    redis.fail_over().await.context("the replica does not take over")?;
    let master = redis.address();
    world.lead_to(master);
    if timeout(LEFT_WITHIN, world.ready()).await.is_err() {
        bail!(
            "leasehold still uses a master that became a replica {LEFT_WITHIN:?} ago, \
             although the address that it was given leads to the new one"
        );
    }
    Ok(Done::harmless(format!("from {former} to {master}, without a lost write")))
}
