//! Clients that wait in long queues, all at one leasehold process, and a few
//! elsewhere for the same resources.

use std::time::Duration;

use super::{Client, Settings};
use crate::history::{Call, Outcome};

/// Over how long the waits of a crowd begin.
const STARTED_WITHIN_MS: u64 = 1_000;
/// How long a holder lets the crowd wait.
const HOLD_MS: std::ops::Range<u64> = 1_000..4_000;
const TTL_MS: u64 = 2_000;
/// One of this many visitors waits; the others try.
const WAITING_VISITORS: u32 = 3;

/// One of a crowd. One client of each resource holds the lock for seconds; the
/// others release it at once.
pub(super) async fn run(mut client: Client, settings: Settings) -> anyhow::Result<()> {
    let resources = settings.resources.max(1);
    let resource = resource(&settings, client.number % resources);
    let holds = client.number < resources;
    // All at one process, so that its end affects all of them.
    let caller = client.caller.at(0);
    client.pause_ms(0..STARTED_WITHIN_MS).await;
    while client.goes_on() {
        let acquisition = client.asks(TTL_MS);
        let wait_ms = client.rng.u64(settings.wait_ms / 2..=settings.wait_ms);
        let call = Call::Lock { acquisition, wait_ms };
        if let Outcome::Granted(granted) = caller.call(&resource, call, None).await? {
            let lock_id = granted.lock_id;
            if holds {
                hold(&mut client, &resource, &lock_id).await?;
            }
            caller.call(&resource, Call::Unlock { lock_id }, None).await?;
        }
        client.pause_ms(10..200).await;
    }
    Ok(())
}

async fn hold(client: &mut Client, resource: &str, lock_id: &str) -> anyhow::Result<()> {
    let caller = client.caller.at(0);
    let mut left_ms = client.rng.u64(HOLD_MS);
    while left_ms > TTL_MS / 2 && client.goes_on() {
        client.pause(Duration::from_millis(TTL_MS / 2)).await;
        left_ms -= TTL_MS / 2;
        let call = Call::Renew { lock_id: lock_id.to_owned(), ttl_ms: TTL_MS };
        caller.call(resource, call, None).await?;
    }
    client.pause(Duration::from_millis(left_ms)).await;
    Ok(())
}

/// A visitor at a random process.
pub(super) async fn visit(mut client: Client, settings: Settings) -> anyhow::Result<()> {
    let resources = settings.resources.max(1);
    let waits = client.number.is_multiple_of(WAITING_VISITORS);
    while client.goes_on() {
        // Waits and tries use different resources, because a waiter blocks
        // tries.
        let half = resources.div_ceil(2);
        let number = if waits || half == resources {
            client.rng.u32(..half)
        } else {
            client.rng.u32(half..resources)
        };
        let resource = resource(&settings, number);
        let acquisition = client.asks(TTL_MS);
        let call = if waits {
            Call::Lock { acquisition, wait_ms: client.rng.u64(6_000..15_000) }
        } else {
            Call::Try(acquisition)
        };
        let caller = client.anywhere();
        if let Outcome::Granted(granted) = caller.call(&resource, call, None).await? {
            let call = Call::Unlock { lock_id: granted.lock_id };
            client.anywhere().call(&resource, call, None).await?;
        }
        client.pause_ms(50..400).await;
    }
    Ok(())
}

fn resource(settings: &Settings, number: u32) -> String {
    format!("{}crowd/{number}", settings.names)
}
