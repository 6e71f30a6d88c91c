//! Clients that wait for long, in queues that move slowly.

use std::time::Duration;

use super::{Client, Settings};
use crate::history::{Call, Outcome};

/// Longer than `operationTimeout`, within which a wait survives an outage.
const WAIT_MS: std::ops::Range<u64> = 10_000..22_000;
const TTL_MS: std::ops::Range<u64> = 3_000..8_000;
/// With some others in line, a wait lasts for seconds.
const HOLD_MS: std::ops::Range<u64> = 50..1_600;

pub(super) async fn run(mut client: Client, settings: Settings) -> anyhow::Result<()> {
    while client.goes_on() {
        let number = client.rng.u32(..settings.resources.max(1));
        let resource = format!("{}long-wait/{number}", settings.names);
        let ttl_ms = client.rng.u64(TTL_MS);
        let acquisition = client.asks(ttl_ms);
        let call = Call::Lock { acquisition, wait_ms: client.rng.u64(WAIT_MS) };
        let caller = client.anywhere();
        if let Outcome::Granted(granted) = caller.call(&resource, call, None).await? {
            client.pause_ms(HOLD_MS).await;
            let call = Call::Unlock { lock_id: granted.lock_id };
            client.anywhere().call(&resource, call, None).await?;
        }
        client.pause(Duration::from_millis(20)).await;
    }
    Ok(())
}
