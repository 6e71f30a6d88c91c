//! Clients that each hold one lock for as long as they can, and renew it every
//! third of its TTL; and clients that wait for such a lock by the lock ID of its holder.

use std::time::Duration;

use super::{Client, Settings};
use crate::{
    check::RENEWED_WITHIN,
    history::{Acquisition, Call, Mode, Outcome},
};

/// Over how long the first acquisitions of a fleet are spread.
const STARTED_WITHIN_MS: u64 = 1_500;
/// One of this many keepers renews at any process, the others at their own.
const ROAMING: u32 = 8;

/// Over how many resources shared grants are spread.
const SHARED_RESOURCES: u32 = 8;
/// How long a wait with the holder's lock ID lasts.
const BRIEF_MS: std::ops::Range<u64> = 100..600;

pub(super) async fn run(client: Client, settings: Settings) -> anyhow::Result<()> {
    let process = settings.process;
    let (mode, number) = if client.readers.are_none() || client.number.is_multiple_of(2) {
        (Mode::Exclusive, client.number)
    } else {
        // A resource that several keep at the same time. There are no exclusive requests
        // for it.
        (Mode::Shared, client.number % (SHARED_RESOURCES * 2))
    };
    let resource = format!("{}renewed/{process}-{mode}-{number}", settings.names);
    let acquisition = Acquisition { ttl_ms: settings.ttl_ms, mode, ..Acquisition::default() };
    hold(client, &settings, &resource, acquisition).await
}

/// The first client of a resource holds it, and the others wait for it, all with the
/// same lock ID.
pub(super) async fn namesakes(mut client: Client, settings: Settings) -> anyhow::Result<()> {
    let resources = settings.resources.max(1);
    let name = format!("{}-{}", settings.process, client.number % resources);
    let resource = format!("{}renewed/namesakes-{name}", settings.names);
    // A secret must not be part of the resource's name, which watchers may see.
    let (ttl_ms, lock_id) = (settings.ttl_ms, Some(format!("secret-{name}")));
    let acquisition = Acquisition { ttl_ms, lock_id, ..Acquisition::default() };
    if client.number < resources {
        return hold(client, &settings, &resource, acquisition).await;
    }
    let pause = Duration::from_millis(settings.ttl_ms) / RENEWED_WITHIN / 4;
    while client.goes_on() {
        let wait_ms = client.rng.u64(BRIEF_MS);
        let call = Call::Lock { acquisition: acquisition.clone(), wait_ms };
        if let Outcome::Granted(granted) = client.anywhere().call(&resource, call, None).await?
        {
            let call = Call::Unlock { lock_id: granted.lock_id };
            client.anywhere().call(&resource, call, None).await?;
            // So that the first one, which only tries, finds the resource free.
            client.pause(pause).await;
        }
    }
    Ok(())
}

async fn hold(
    mut client: Client,
    settings: &Settings,
    resource: &str,
    acquisition: Acquisition,
) -> anyhow::Result<()> {
    let every = Duration::from_millis(settings.ttl_ms) / RENEWED_WITHIN;
    client.pause_ms(0..STARTED_WITHIN_MS).await;
    while client.goes_on() {
        let call = Call::Try(acquisition.clone());
        let outcome = client.caller.call(resource, call, Some(every)).await?;
        let Outcome::Granted(granted) = outcome else {
            client.pause(every / 4).await;
            continue;
        };
        let lock_id = granted.lock_id;
        // A client with a shared lock ID awaits every answer.
        let patience = acquisition.lock_id.is_none().then_some(every);
        if keep(&mut client, resource, &lock_id, settings.ttl_ms, patience).await? {
            client.caller.call(resource, Call::Unlock { lock_id }, None).await?;
        }
    }
    Ok(())
}

/// Renews until the run ends or the grant is lost. Returns whether it is held.
async fn keep(
    client: &mut Client,
    resource: &str,
    lock_id: &str,
    ttl_ms: u64,
    patience: Option<Duration>,
) -> anyhow::Result<bool> {
    let every = Duration::from_millis(ttl_ms) / RENEWED_WITHIN;
    // Slightly less than a third of the TTL, because a busy machine adds to it.
    let mut pause = every * 9 / 10;
    loop {
        client.pause(pause).await;
        if !client.goes_on() {
            return Ok(true);
        }
        let caller = if client.number.is_multiple_of(ROAMING) {
            client.anywhere()
        } else {
            client.caller.clone()
        };
        let call = Call::Renew { lock_id: lock_id.to_owned(), ttl_ms };
        match caller.call(resource, call, patience).await? {
            Outcome::Renewed { .. } => pause = every * 9 / 10,
            Outcome::NotHeld { .. } => return Ok(false),
            _ => pause = every / 10,
        }
    }
}
