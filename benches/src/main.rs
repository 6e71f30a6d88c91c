//! Measures leasehold against its peers, both sides in one run and in turn,
//! because machines are noisy: compare ratios, not absolute figures.
//!
//! Every server is started here, on loopback or a Unix socket, and ended with
//! the run. Loads are bounded in callers and time.
#![allow(clippy::print_stdout, reason = "the report is what this program is for")]

mod bare;
mod builds;
mod client;
mod cluster;
mod cycles;
mod etcd;
mod front;
mod handover;
mod inspection;
mod losses;
mod process;
mod redis_work;
mod report;
mod servers;
mod shared;
mod sidecar;
mod stores;
mod weight;

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use leasehold::runtime::on_half_of_the_cores;

/// Measures leasehold against its peers.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything below, one after the other.
    All(Options),
    /// Lock and unlock on Redis, beside the two smallest scripts.
    Redis(Options),
    /// Lock and unlock on a Redis Cluster of three masters, beside one master.
    Cluster(Options),
    /// One key and many waiters on Redis: order, latency, work a grant.
    Handover(Options),
    /// Lock and unlock, and hand-over, on etcd beside the mutex of its Go client.
    Etcd(Options),
    /// Lock and unlock through the sidecar on Redis, beside the component alone.
    Sidecar(Options),
    /// Lock and unlock through the Redis front, under daprd and by a client of Redis.
    Front {
        /// A daprd.
        #[arg(long, default_value = "target/daprd/daprd-stock")]
        daprd: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// 100,000 locks held through the sidecar, and 1,000 of them lost at once.
    Losses(Options),
    /// Start-up, memory of a million held locks, and after them.
    Weight(Options),
    /// Shared locks beside exclusive ones, and readers that wait behind a writer.
    Shared {
        /// The stores to measure on: memory, redis, etcd.
        #[arg(long, value_delimiter = ',', default_values_t = stores::STORES.map(String::from))]
        store: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// The cost of lists and a watch of 100,000 held locks for callers that lock.
    Inspection {
        /// The stores to measure on: memory, redis, etcd.
        #[arg(long, value_delimiter = ',', default_values_t = stores::STORES.map(String::from))]
        store: Vec<String>,
        #[command(flatten)]
        options: Options,
    },
    /// This build beside another one, in turn, on every backend.
    Builds {
        /// The stores to measure on: memory, redis, etcd.
        #[arg(long, value_delimiter = ',', default_value = "memory,redis,etcd")]
        store: Vec<String>,
        /// The other build; the same if it is not given.
        #[arg(long, required_unless_present = "metrics")]
        against: Option<PathBuf>,
        /// Count metrics in this build, and not in the other.
        #[arg(long)]
        metrics: bool,
        #[command(flatten)]
        options: Options,
    },
    /// The baseline, as a server: put if absent, and compare and delete.
    #[command(hide = true)]
    Bare {
        /// Where to listen.
        #[arg(long)]
        socket: PathBuf,
        #[command(flatten)]
        over: bare::Over,
    },
}

#[derive(Args, Clone)]
struct Options {
    /// The release build to measure.
    #[arg(long, default_value = "target/release/leasehold")]
    leasehold: PathBuf,
    /// The etcd servers to measure on; may be given more than once.
    #[arg(long, default_value = "etcd")]
    etcd: Vec<PathBuf>,
    /// How often each side is measured, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The numbers of callers that make cycles at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    callers: Vec<usize>,
    /// Leave hand-over out of the comparison on etcd, and waits out of that of shared locks.
    #[arg(long)]
    only_cycles: bool,
    /// How long each measurement lasts.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
}

impl Options {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() -> Result<()> {
    // Like leasehold itself: the load and the baselines share the machine with
    // it.
    on_half_of_the_cores()?.block_on(run(Cli::parse().command))
}

async fn run(command: Command) -> Result<()> {
    match command {
        Command::Bare { socket, over } => bare::serve(&socket, &over).await,
        Command::Redis(options) => cycles::redis(&options).await,
        Command::Cluster(options) => cluster::compare(&options).await,
        Command::Handover(options) => handover::redis(&options).await,
        Command::Etcd(options) => etcd::compare(&options).await,
        Command::Sidecar(options) => sidecar::redis(&options).await,
        Command::Front { daprd, options } => front::compare(&options, &daprd).await,
        Command::Losses(options) => losses::redis(&options).await,
        Command::Weight(options) => weight::memory(&options).await,
        Command::Shared { store, options } => shared::compare(&options, &store).await,
        Command::Inspection { store, options } => inspection::compare(&options, &store).await,
        Command::Builds { store, against, metrics, options } => {
            let against = against.as_ref().unwrap_or(&options.leasehold);
            let flags = if metrics { ["--metrics-port=0"].as_slice() } else { &[] };
            builds::compare(&options, &store, against, flags).await
        }
        Command::All(options) => {
            cycles::redis(&options).await?;
            cluster::compare(&options).await?;
            handover::redis(&options).await?;
            etcd::compare(&options).await?;
            sidecar::redis(&options).await?;
            losses::redis(&options).await?;
            shared::compare(&options, &stores::STORES).await?;
            inspection::compare(&options, &stores::STORES).await?;
            weight::memory(&options).await
        }
    }
}
