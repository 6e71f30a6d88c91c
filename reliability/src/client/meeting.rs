//! Groups of readers that unlock only once all of a group hold, each with a writer that
//! makes them queue.
//!
//! In each round the writer holds while half of the readers queue, and unlocks. It waits
//! again, behind readers that hold, and gives up; meanwhile the other half queues behind it.
//! Then all readers must hold together. If one is left out, its wait lasts until the others
//! lose patience, and the check finds it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{Client, Settings};
use crate::history::{Acquisition, Call, Mode, Outcome};

const WAIT_MS: u64 = 14_000;
const WRITER_TTL_MS: u64 = 3_000;
/// After this long a wait is certainly queued, on etcd too.
const QUEUED_MS: std::ops::Range<u64> = 1_100..1_600;
/// How long the writer waits for readers that hold.
const GIVES_UP_MS: std::ops::Range<u64> = 1_400..2_600;
/// One in this many times the writer cancels its wait; otherwise it has a deadline,
/// and its outcome is known.
const CANCELLED_OF: u32 = 3;
/// How long readers wait for each other: longer than a skipped waiter may wait.
const PATIENCE: Duration = Duration::from_millis(9_000);
const READER_TTL_MS: u64 = 12_000;

/// Signals among the members of a group. Each value only rises.
#[derive(Debug)]
struct Group {
    /// How many readers there are.
    readers: u64,
    /// How often the first half, and how often the second half, were signalled to queue.
    opened: [watch::Sender<u64>; 2],
    /// How many readers have ended their wait, in all rounds together.
    arrived: watch::Sender<u64>,
}

/// All groups of a process. A client belongs to the group of its number.
#[derive(Clone, Debug)]
pub(super) struct Groups(Arc<[Group]>);

impl Groups {
    pub(super) fn new(clients: u32, groups: u32) -> Self {
        let groups = groups.clamp(1, clients.max(1));
        let readers =
            |number| u64::from((number..clients).step_by(groups as usize).count() as u32);
        let group = |number| Group {
            // One of them writes.
            readers: readers(number).saturating_sub(1),
            opened: [watch::Sender::new(0), watch::Sender::new(0)],
            arrived: watch::Sender::new(0),
        };
        Self((0..groups).map(group).collect())
    }
}

pub(super) async fn run(
    client: Client,
    groups: Groups,
    settings: Settings,
) -> anyhow::Result<()> {
    let count = groups.0.len();
    let number = client.number as usize;
    let Some(group) = groups.0.get(number % count) else { return Ok(()) };
    let resource = format!("{}meeting/{}-{}", settings.names, settings.process, number % count);
    match number / count {
        0 => write(client, group, &resource).await,
        place => read(client, group, place % 2, &resource).await,
    }
}

async fn write(mut client: Client, group: &Group, resource: &str) -> anyhow::Result<()> {
    let mut arrived = group.arrived.subscribe();
    let mut round = 0;
    while client.goes_on() {
        let Some(lock_id) = acquire(&mut client, resource, WAIT_MS, None).await? else {
            client.pause_ms(20..200).await;
            continue;
        };
        round += 1;
        group.opened[1].send_replace(round);
        client.pause_ms(QUEUED_MS).await;
        client.anywhere().call(resource, Call::Unlock { lock_id }, None).await?;
        // Behind readers that hold, before those that queue now.
        let gives_up_ms = client.rng.u64(GIVES_UP_MS);
        let patience = Duration::from_millis(gives_up_ms);
        let (wait_ms, patience) = match client.rng.u32(..CANCELLED_OF) {
            0 => (WAIT_MS, Some(patience)),
            _ => (gives_up_ms, None),
        };
        let mut queued = client.clone();
        let opens = async {
            queued.pause_ms(QUEUED_MS).await;
            group.opened[0].send_replace(round);
        };
        let (served, ()) =
            tokio::join!(acquire(&mut client, resource, wait_ms, patience), opens);
        if let Some(lock_id) = served? {
            client.anywhere().call(resource, Call::Unlock { lock_id }, None).await?;
        }
        let all = round * group.readers;
        let met = arrived.wait_for(|arrived| *arrived >= all);
        tokio::select! {
            _ = met => {}
            () = client.stop.cancelled() => {}
        }
    }
    Ok(())
}

/// An exclusive grant's lock ID.
async fn acquire(
    client: &mut Client,
    resource: &str,
    wait_ms: u64,
    patience: Option<Duration>,
) -> anyhow::Result<Option<String>> {
    let acquisition = Acquisition { ttl_ms: WRITER_TTL_MS, ..Acquisition::default() };
    let call = Call::Lock { acquisition, wait_ms };
    let outcome = client.anywhere().call(resource, call, patience).await?;
    Ok(match outcome {
        Outcome::Granted(granted) => Some(granted.lock_id),
        _ => None,
    })
}

async fn read(
    mut client: Client,
    group: &Group,
    half: usize,
    resource: &str,
) -> anyhow::Result<()> {
    let mut opened = group.opened[half].subscribe();
    let mut arrived = group.arrived.subscribe();
    for round in 1.. {
        let stop = client.stop.clone();
        tokio::select! {
            _ = opened.wait_for(|opened| *opened >= round) => {}
            () = stop.cancelled() => return Ok(()),
        }
        let acquisition =
            Acquisition { ttl_ms: READER_TTL_MS, mode: Mode::Shared, ..Acquisition::default() };
        let call = Call::Lock { acquisition, wait_ms: WAIT_MS };
        let outcome = client.anywhere().call(resource, call, None).await?;
        // Those who failed are not waited for.
        group.arrived.send_modify(|arrived| *arrived += 1);
        let Outcome::Granted(granted) = outcome else { continue };
        let all = round * group.readers;
        tokio::select! {
            _ = arrived.wait_for(|arrived| *arrived >= all) => {}
            () = client.pause(PATIENCE) => {}
        }
        let call = Call::Unlock { lock_id: granted.lock_id };
        client.anywhere().call(resource, call, None).await?;
    }
    Ok(())
}
