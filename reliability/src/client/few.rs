//! Few clients that lock few resources one after the other, so that after a
//! restore of an older data set, etcd reuses revisions.

use super::{Client, Settings};
use crate::history::{Call, Outcome};

const TTL_MS: u64 = 8_000;
/// Long enough to outlast a restore.
const HOLD_MS: std::ops::Range<u64> = 100..5_000;

pub(super) async fn run(mut client: Client, settings: Settings) -> anyhow::Result<()> {
    while client.goes_on() {
        let number = client.rng.u32(..settings.resources.max(1));
        let resource = format!("{}few/{number}", settings.names);
        let acquisition = client.asks(TTL_MS);
        let outcome = client.caller.call(&resource, Call::Try(acquisition), None).await?;
        if let Outcome::Granted(granted) = outcome {
            client.pause_ms(HOLD_MS).await;
            let call = Call::Unlock { lock_id: granted.lock_id };
            client.caller.call(&resource, call, None).await?;
        }
        client.pause_ms(20..100).await;
    }
    Ok(())
}
