//! The longest names and the longest TTL that are allowed.

use anyhow::ensure;

use super::invalid::{NAME_BYTES_MAX, RESOURCE_ID_BYTES_MAX};
use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, not_shorter},
    feature::Feature,
    grant::Ask,
    world::{World, hold, secs},
};

const TTL_SECONDS_MAX: u64 = 24 * 60 * 60;

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a resource_id of 1,024 bytes is granted", |world| longest(world, 'r'));
    cases.core("a resource_id of 1,024 bytes of two-byte letters is granted", |world| {
        longest(world, 'é')
    });
    cases.core(
        "names of 1,024 bytes that differ in the last are different",
        |world| async move {
            let name = format!("{:r<1$}", world.resource(), RESOURCE_ID_BYTES_MAX - 1);
            for last in ["a", "b"] {
                hold(&world.store(), &Ask::of(&format!("{name}{last}"))).await?;
            }
            Ok(())
        },
    );
    cases.core("a lock_id of 256 bytes is granted and unlocks", lock_id);
    let replay = Demand::Features(&[Feature::Replay]);
    cases.add(replay, "a request_id of 256 bytes is granted", |world| async move {
        let ask = Ask::of(&world.resource()).request_id(&padded(NAME_BYTES_MAX, 'q'));
        hold(&world.store(), &ask).await.map(drop)
    });
    cases.core("a holder of 256 bytes is granted", |world| async move {
        let ask = Ask::of(&world.resource()).holder(&padded(NAME_BYTES_MAX, 'h'));
        hold(&world.store(), &ask).await.map(drop)
    });
    cases.core("a ttl of 24 h is granted", |world| async move {
        let asked = secs(TTL_SECONDS_MAX);
        let grant = hold(&world.store(), &Ask::of(&world.resource()).ttl(asked)).await?;
        not_shorter(grant.ttl, asked)
    });
}

/// A secret of this many bytes.
fn padded(bytes: usize, with: char) -> String {
    let secret = World::secret();
    let padding = with.to_string().repeat((bytes - secret.len()) / with.len_utf8());
    secret + &padding
}

async fn longest(world: World, with: char) -> anyhow::Result<()> {
    let mut resource = world.resource();
    while resource.len() + with.len_utf8() <= RESOURCE_ID_BYTES_MAX {
        resource.push(with);
    }
    resource.extend((resource.len()..RESOURCE_ID_BYTES_MAX).map(|_| 'r'));
    ensure!(resource.len() == RESOURCE_ID_BYTES_MAX, "{} bytes", resource.len());
    let grant = hold(&world.store(), &Ask::of(&resource)).await?;
    world.store().release(&grant).await.or_fail("Unlock")
}

async fn lock_id(world: World) -> anyhow::Result<()> {
    let own = padded(NAME_BYTES_MAX, 'l');
    let grant = hold(&world.store(), &Ask::of(&world.resource()).lock_id(&own)).await?;
    ensure!(grant.lock_id == own, "granted with the lock ID {}", grant.lock_id);
    world.store().release(&grant).await.or_fail("Unlock")
}
