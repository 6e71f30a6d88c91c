//! Every fault of every catalogue, on real servers under load: it really
//! happens, and leasehold recovers and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod load;
mod witness;

use std::{
    process::ExitCode,
    sync::{Arc, LazyLock},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use leasehold_reliability::{
    faults,
    world::{Backend, World, probe::Probe},
};
use leasehold_testkit::wait::eventually;
use libtest_mimic::{Arguments, Failed, Trial};
use load::Load;
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::Mutex};
use witness::Witness;

/// A fault that was too short to be observed is tried again with another seed.
const SEEDS: std::ops::Range<u64> = 1..12;
/// How many grants must be made after a fault.
const CYCLES_AFTER: u64 = 20;
const CYCLES_WITHIN: Duration = Duration::from_secs(20);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// One world for all faults of a backend, made anew after a failure.
type Shared = Arc<Mutex<Option<(World, TempDir)>>>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let (mut trials, mut worlds) = (Vec::new(), Vec::new());
    for backend in Backend::ALL {
        let shared = Shared::default();
        let mut faults = faults::catalogue(backend);
        if [Backend::RedisSentinel, Backend::RedisCluster].contains(&backend) {
            // These are tried with one Redis server.
            faults.retain(|fault| !fault.starts_with("leasehold-"));
        }
        for (turn, fault) in faults.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let name = format!("{}: {fault} happens and is survived", backend.name());
            let test = move || RUNTIME.block_on(trial(backend, fault, &shared)).map_err(failed);
            trials.push((turn, Trial::test(name, test)));
        }
        worlds.push(shared);
    }
    // Trials of one backend exclude each other, so consecutive trials are of different
    // backends.
    trials.sort_by_key(|(turn, _)| *turn);
    let trials = trials.into_iter().map(|(_, trial)| trial).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    RUNTIME.block_on(async {
        for shared in worlds {
            if let Some((world, _folder)) = shared.lock().await.take() {
                world.stop().await;
            }
        }
    });
    conclusion.exit_code()
}

#[allow(clippy::needless_pass_by_value)]
fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

async fn trial(backend: Backend, fault: &'static str, shared: &Shared) -> anyhow::Result<()> {
    let mut shared = shared.lock().await;
    let (mut world, folder) = match shared.take() {
        Some(there) => there,
        None => World::for_test(backend, 1).await?,
    };
    match survives(&mut world, fault).await {
        Ok(()) => {
            *shared = Some((world, folder));
            Ok(())
        }
        Err(error) => {
            let kept = folder.keep();
            Err(error.context(format!("logs are in {}", kept.display())))
        }
    }
}

async fn survives(world: &mut World, fault: &str) -> anyhow::Result<()> {
    let load = Load::start(&world.sockets());
    for seed in SEEDS {
        let witness = Witness::before(world, fault).await?;
        let mut rng = fastrand::Rng::with_seed(seed);
        let injected = faults::inject(world, fault, &mut rng).await?;
        ensure!(injected.until_ns > injected.from_ns && injected.name == fault);
        let seen = witness.has_seen(world, &injected).await.context(injected.detail)?;
        world.heal().await.context("heal")?;
        if seen {
            return recovers(world, load, fault).await;
        }
    }
    bail!("with none of the seeds {SEEDS:?} was anything seen of it")
}

async fn recovers(world: &mut World, load: Load, fault: &str) -> anyhow::Result<()> {
    let before = load.cycles();
    let served = eventually(CYCLES_WITHIN, "callers get grants again", async || {
        ensure!(load.cycles() >= before + CYCLES_AFTER, "{} grants", load.cycles() - before);
        Ok(())
    })
    .await;
    let met = load.stop().await;
    served.with_context(|| format!("callers met {met:?}"))?;
    // A process that was suspended itself may answer late.
    let stood_still = ["leasehold-suspended", "leasehold-machine-suspended"].contains(&fault);
    ensure!(met.hung.is_empty() || stood_still, "hung: {:?}", met.hung);
    for socket in world.sockets() {
        Probe::connect(&socket).await?.cycle().await.context("after the fault")?;
    }
    let left = world.leftovers().await?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}
