//! A client process: clients that use leasehold at random, from a seed, and
//! record every call.

mod caller;
mod connection;
mod mind;
mod names;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{io::AsyncReadExt, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

pub use caller::Caller;
pub use connection::{LockStore, lock_store};
use mind::Mind;
use names::Names;

use crate::{clock::now_ns, history::Log};

/// How long the clients of a process may take to end their last calls.
const LAST_CALLS_MAX: Duration = Duration::from_secs(25);

/// What a client process is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// A leasehold process's socket; clients are dealt out over them.
    #[arg(long = "socket", required = true)]
    pub sockets: Vec<PathBuf>,
    /// The number of this process in its run, never used twice.
    #[arg(long)]
    pub process: u32,
    /// How many clients it runs.
    #[arg(long)]
    pub clients: u32,
    /// What its choices follow from.
    #[arg(long)]
    pub seed: u64,
    /// Where it records.
    #[arg(long)]
    pub history: PathBuf,
    /// When the run began, on the monotonic clock: resources are renamed at
    /// whole periods since.
    #[arg(long)]
    pub began_ns: u64,
    /// What every resource's name begins with.
    #[arg(long, default_value = "")]
    pub names: String,
    /// How many resources of each kind are in use at a time.
    #[arg(long, default_value_t = 8)]
    pub resources: u32,
    /// The longest pause between two calls of a client.
    #[arg(long, default_value_t = 20)]
    pub pause_ms_max: u64,
}

/// Runs the clients until standard input ends, and then until each has ended
/// its last call.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let log = Arc::new(Log::append(&settings.history)?);
    let ids = Caller::ids(settings.process);
    let stop = CancellationToken::new();
    let stores: Vec<_> = settings.sockets.iter().map(|socket| lock_store(socket)).collect();
    let mut minds = JoinSet::new();
    for client in 0..settings.clients {
        let socket = (settings.process + client) as usize % stores.len();
        let store = stores.get(socket).cloned().context("no socket")?;
        let caller = Caller::new(store, Arc::clone(&log), Arc::clone(&ids), client);
        let rng = fastrand::Rng::with_seed(settings.seed ^ u64::from(client) << 48);
        let names = Names::new(settings.names.clone(), settings.began_ns, settings.resources);
        let mind = Mind::new(caller, names, rng, settings.pause_ms_max);
        minds.spawn(mind.run(stop.clone()));
    }
    wait_for_the_end().await;
    stop.cancel();
    let ended = timeout(LAST_CALLS_MAX, async {
        while let Some(ended) = minds.join_next().await {
            ended.context("a client panicked")??;
        }
        anyhow::Ok(())
    });
    ended.await.with_context(|| format!("clients still wait at {}", now_ns()))?
}

/// Standard input ends when the runner says so, and when the runner dies.
pub(crate) async fn wait_for_the_end() {
    let mut input = tokio::io::stdin();
    let mut byte = [0];
    while matches!(input.read(&mut byte).await, Ok(read) if read > 0) {}
}
