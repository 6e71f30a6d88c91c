//! A round: clients on a world for a while, faults, a calm end, the check.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Plan, Report, Settings, client_faults,
    clients::Clients,
    record::{FaultLog, Record, check_folder, write_words},
};
use crate::{
    client::{Caller, LASTING, process},
    clock::now_ns,
    faults::{self, Injected},
    history::{Acquisition, Call, LAST_WAITS, Log, Outcome, read_folder},
    watch::Watchers,
    world::{World, leasehold::Leasehold},
};

/// How long a fault, and the healing of a world, may take: otherwise the run
/// itself is broken.
const FAULT_MAX: Duration = Duration::from_secs(90);
/// How long until everything serves again after a fault: elections and new connections take
/// seconds on a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// The same with replicas that replace masters, which may take longer.
const SETTLED_WITHIN_REPLICAS: Duration = Duration::from_secs(40);
/// How long the only waiter of a resource may wait for it.
const LAST_WAIT_MS: u64 = 15_000;
/// How many resources are waited for at once at the end.
const LAST_WAITS_AT_ONCE: usize = 32;

/// Carries a round out and checks it; everything is recorded in `folder`. If it
/// is the `last` of its world, leasehold is stopped before leftovers are
/// searched.
pub(super) async fn carry_out(
    settings: &Settings,
    world: &mut World,
    plan: &Plan,
    folder: &Path,
    last: bool,
) -> anyhow::Result<Report> {
    std::fs::create_dir_all(folder)?;
    let mut rng = fastrand::Rng::with_seed(plan.seed);
    let sockets = world.sockets();
    let watchers = match plan.is_watched {
        true => Watchers::start(&sockets, &plan.name).await?,
        false => None,
    };
    let mut clients = Clients::start(settings, plan, world, folder, rng.fork())?;
    inject_all(world, &mut clients, plan, folder, &mut rng).await?;
    timeout(FAULT_MAX, world.heal()).await.context("the world does not heal")??;
    sleep(plan.calm_for).await;
    clients.end().await?;
    let watched = match watchers {
        Some(watchers) => Some(watchers.compare().await?),
        None => None,
    };
    wait_for_everything(&sockets, folder).await?;
    world.processes_mut().try_for_each(Leasehold::is_sound)?;
    let mut left = world.leftovers().await?;
    let weights = world.weights();
    if last {
        left.extend(world.left_after_stop().await?);
    }
    let mut log = FaultLog::append(folder)?;
    for promotion in world.promotions()? {
        log.record(&Injected::promotion(&promotion))?;
    }
    let mut differences = Vec::new();
    if let Some((found, words)) = watched {
        write_words(folder, &words)?;
        differences = found;
    }
    Record { backend: settings.backend, seed: plan.seed, left, differences }.write(folder)?;
    let folder = folder.to_owned();
    let checked = tokio::task::spawn_blocking(move || check_folder(&folder));
    let (_, faults, verdict) = checked.await??;
    Ok(Report { seed: plan.seed, situation: plan.situation, faults, verdict, weights })
}

async fn inject_all(
    world: &mut World,
    clients: &mut Clients,
    plan: &Plan,
    folder: &Path,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<()> {
    let mut log = FaultLog::append(folder)?;
    let mut felt = Vec::new();
    sleep(plan.quiet_for).await;
    let until = Instant::now() + plan.faults_for;
    loop {
        sleep(Duration::from_millis(rng.u64(300..1_000))).await;
        let next = if Instant::now() < until { plan.draw_fault(rng) } else { None };
        let Some(name) = next else {
            tokio::time::sleep_until(until).await;
            return settle(world, &mut felt, &mut log).await;
        };
        if client_faults::knows(name) && !clients.has_one_for(name) {
            continue;
        }
        // How many numbers a fault draws depends on what it finds; the next ones must not.
        let mut of_fault = rng.fork();
        felt.push(if client_faults::knows(name) {
            clients.inject(name, world, &mut of_fault).await?
        } else {
            timeout(FAULT_MAX, faults::inject(world, name, &mut of_fault))
                .await
                .with_context(|| format!("the fault {name} does not end"))??
        });
        // Sometimes the next fault begins before everything has settled.
        if rng.u8(0..3) > 0 {
            settle(world, &mut felt, &mut log).await?;
        }
    }
}

/// Waits until everything is as before the faults, and records them.
async fn settle(
    world: &World,
    felt: &mut Vec<Injected>,
    log: &mut FaultLog,
) -> anyhow::Result<()> {
    let fails_over = world.backend().fails_over();
    let within = if fails_over { SETTLED_WITHIN_REPLICAS } else { SETTLED_WITHIN };
    let settled = timeout(within, world.settle()).await;
    let until_ns = now_ns();
    for mut fault in felt.drain(..) {
        fault.until_ns = until_ns;
        log.record(&fault)?;
    }
    settled.context("not everything serves again though no fault is left")?
}

/// Waits for every resource once more: leftovers on it must end, and there is
/// no other waiter. Recorded as process [`LAST_WAITS`].
async fn wait_for_everything(sockets: &[PathBuf], folder: &Path) -> anyhow::Result<()> {
    let mut names: Vec<_> =
        read_folder(folder)?.into_iter().map(|op| op.invocation.resource).collect();
    names.sort_unstable();
    names.dedup();
    let log = Arc::new(Log::append(&folder.join(format!("history-{LAST_WAITS}.jsonl")))?);
    let ids = Caller::ids(LAST_WAITS);
    let processes: Arc<[_]> = sockets.iter().map(|socket| process(socket)).collect();
    let waits = names.into_iter().zip(0..).map(|(name, client)| {
        let caller =
            Caller::new(Arc::clone(&processes), Arc::clone(&log), Arc::clone(&ids), client);
        async move {
            if name.contains(LASTING) {
                // A killed client may hold it for hours.
                caller.call(&name, Call::Force, None).await?;
            }
            let acquisition = Acquisition { ttl_ms: 2_000, ..Acquisition::default() };
            let call = Call::Lock { acquisition, wait_ms: LAST_WAIT_MS };
            if let Outcome::Granted(granted) = caller.call(&name, call, None).await? {
                let call = Call::Unlock { lock_id: granted.lock_id };
                caller.call(&name, call, None).await?;
            }
            anyhow::Ok(())
        }
    });
    let mut waits = stream::iter(waits).buffer_unordered(LAST_WAITS_AT_ONCE);
    while let Some(waited) = waits.next().await {
        waited?;
    }
    Ok(())
}
