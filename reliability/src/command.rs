//! The command line.
#![allow(clippy::print_stdout, reason = "its output is the product")]

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::{Parser, Subcommand, value_parser};

use crate::{
    client, faults, register,
    run::{
        CLIENT_FAULTS, CROWD_FAULTS, Settings, Situation, Soaked, Summary, check_folder,
        soak as go_on,
    },
    world::Backend,
};

/// Checked histories of leasehold under faults, on real servers.
#[derive(Debug, Parser)]
#[command(name = "leasehold-reliability", version)]
pub struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Carry out runs, each from its own seed, and check them.
    ///
    /// A run that finds something leaves its folder, BACKEND-SEED: the calls
    /// (history-*.jsonl, times of the monotonic clock), the faults, what was
    /// violated and by which calls, and all logs. Exits with 1 if a promise was
    /// broken, or a run could not be carried out.
    Run {
        /// The backend.
        #[arg(long)]
        backend: Backend,
        #[command(flatten)]
        workload: Workload,
        /// How many runs, of some 12 to 60 s each.
        #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
        runs: u64,
        /// The seed of the first run; the next ones count up. Random if absent.
        #[arg(long)]
        seed: Option<u64>,
        /// Also keep the folders of runs without violations.
        #[arg(long)]
        keep: bool,
    },
    /// Check a run again from its folder.
    Check {
        /// The folder, BACKEND-SEED: of a run that found something, or with
        /// `run --keep`.
        folder: PathBuf,
    },
    /// Carry out runs until one finds a violation, and print how many
    /// operations that took. For a leasehold with a planted defect: exits with
    /// 0 if a violation was found.
    Hunt {
        /// The backend.
        #[arg(long)]
        backend: Backend,
        #[command(flatten)]
        workload: Workload,
        /// How many runs at most.
        #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..))]
        runs: u64,
        /// The seed of the first run; the next ones count up.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Run rounds for a while over the same leasehold processes, on all
    /// backends in turn, and print how those have grown.
    ///
    /// Exits with 1 if a promise was broken, or if a process takes more than
    /// twice the memory that it took after the first round and 8 MiB, or 8
    /// descriptors more. Faults that end leasehold are left out. A round cannot
    /// be repeated alone: it depends on earlier ones.
    Soak {
        /// For how many minutes.
        #[arg(long)]
        minutes: f64,
        /// A backend; may be repeated. All if absent.
        #[arg(long = "backend")]
        backends: Vec<Backend>,
        /// The seed of all choices. Random if absent.
        #[arg(long)]
        seed: Option<u64>,
        #[command(flatten)]
        workload: Workload,
    },
    /// Increment and read a register in many processes that are suspended and killed:
    /// with tokens checked no update is lost, and no reader sees half of a change.
    Register {
        /// The backend.
        #[arg(long, default_value = "memory")]
        backend: Backend,
        /// The seed of all choices. Random if absent.
        #[arg(long)]
        seed: Option<u64>,
        /// Show step by step the update that is lost without the check when a
        /// holder is suspended past its TTL.
        #[arg(long)]
        demonstrate: bool,
        #[command(flatten)]
        workload: Workload,
    },
    /// One process that increments or reads a register.
    #[command(hide = true)]
    Worker(register::WorkerSettings),
    /// One client process of a run; ends when its standard input does.
    #[command(hide = true)]
    Client(client::Settings),
}

/// The parameters of the runs.
#[derive(Clone, Debug, clap::Args)]
struct Workload {
    /// The leasehold binary; the one beside this program if absent.
    #[arg(long)]
    leasehold: Option<PathBuf>,
    /// The etcd binary.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// leasehold processes (memory always has one).
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u8).range(1..=16))]
    processes: u8,
    /// Client processes.
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=16))]
    client_processes: u32,
    /// Clients in each.
    #[arg(long, default_value_t = 32, value_parser = value_parser!(u32).range(1..=1_000))]
    clients: u32,
    /// The longest pause between two calls of a client.
    #[arg(long, default_value_t = 12)]
    pause_ms_max: u64,
    /// For how long faults are injected in each run.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// How many seconds the clients continue after the last fault. 1.5 if
    /// absent; 4 on etcd, where few pairs of waits would have a certain order
    /// with less.
    #[arg(long)]
    calm_seconds: Option<f64>,
    /// The name of a fault to leave out; may be repeated.
    #[arg(long)]
    without: Vec<String>,
    /// The situation of the clients in every run; drawn from the seed if absent.
    #[arg(long)]
    situation: Option<Situation>,
    /// Where the folders of runs are created.
    #[arg(long, default_value = "target/reliability")]
    folder: PathBuf,
}

impl Workload {
    fn settings(&self, backend: Backend) -> anyhow::Result<Settings> {
        let program = std::env::current_exe().context("this program's own path")?;
        let beside = || program.with_file_name("leasehold");
        let leasehold = self.leasehold.clone().unwrap_or_else(beside);
        anyhow::ensure!(
            leasehold.is_file(),
            "{} is missing; build it first: cargo build --bin leasehold (and --release, as \
             this program), or name one with --leasehold",
            leasehold.display()
        );
        let faults: Vec<_> = faults::catalogue(backend)
            .into_iter()
            .chain(faults::of_fronts(backend))
            .chain(CLIENT_FAULTS.iter().chain(CROWD_FAULTS).copied())
            .collect();
        for name in &self.without {
            // The fault may be of another backend in a soak of several.
            let known = Backend::ALL.iter().any(|of| {
                faults::catalogue(*of).contains(&&**name)
                    || faults::of_fronts(*of).any(|fault| fault == name)
            });
            anyhow::ensure!(
                known || faults.contains(&&**name),
                "--without {name}: there is no such fault; on {} there are {}",
                backend.name(),
                faults.join(", ")
            );
        }
        let calm = match (self.calm_seconds, backend) {
            (Some(named), _) => named,
            (None, Backend::Etcd) => 4.0,
            (None, _) => 1.5,
        };
        Ok(Settings {
            backend,
            leasehold,
            etcd: self.etcd.clone(),
            program,
            processes: self.processes.into(),
            client_processes: self.client_processes,
            clients: self.clients,
            pause_ms_max: self.pause_ms_max,
            faults_for: Duration::try_from_secs_f64(self.seconds).context("--seconds")?,
            calm_for: Duration::try_from_secs_f64(calm).context("--calm-seconds")?,
            without: self.without.clone(),
            situation: self.situation,
            folder: self.folder.clone(),
        })
    }
}

impl Command {
    /// Runs the command. Returns the exit code.
    pub async fn carry_out(self) -> anyhow::Result<i32> {
        match self.verb {
            Verb::Run { backend, workload, runs, seed, keep } => {
                let seed = seed.unwrap_or_else(random_seed);
                run(&workload.settings(backend)?, runs, seed, keep).await
            }
            Verb::Check { folder } => {
                let (record, faults, verdict) = check_folder(&folder)?;
                println!("seed {}: {verdict}; {} faults", record.seed, faults.len());
                for violation in &verdict.violations {
                    println!("  {violation}");
                }
                Ok(i32::from(!verdict.violations.is_empty()))
            }
            Verb::Hunt { backend, workload, runs, seed } => {
                hunt(&workload.settings(backend)?, runs, seed).await
            }
            Verb::Soak { minutes, backends, seed, workload } => {
                let during = Duration::try_from_secs_f64(minutes * 60.0)?;
                soak(&workload, backends, seed.unwrap_or_else(random_seed), during).await
            }
            Verb::Register { backend, seed, demonstrate, workload } => {
                let seed = seed.unwrap_or_else(random_seed);
                count(&workload.settings(backend)?, seed, demonstrate).await
            }
            Verb::Worker(settings) => {
                register::work(settings).await?;
                Ok(0)
            }
            Verb::Client(settings) => {
                client::run(settings).await?;
                Ok(0)
            }
        }
    }
}

async fn run(settings: &Settings, runs: u64, seed: u64, keep: bool) -> anyhow::Result<i32> {
    let mut summary = Summary::default();
    let mut broken = 0;
    for seed in seed..seed.saturating_add(runs) {
        match settings.run(seed, keep).await {
            Ok(report) => {
                println!("{} {report}", settings.backend.name());
                for violation in &report.verdict.violations {
                    println!("  {violation}");
                }
                if !report.verdict.violations.is_empty() {
                    println!("  see {}", settings.folder_of(seed).display());
                }
                summary.add(report);
            }
            Err(error) => {
                broken += 1;
                println!(
                    "{} seed {seed} could not be carried out: {error:#}",
                    settings.backend.name()
                );
            }
        }
    }
    println!("{} {summary}", settings.backend.name());
    if broken > 0 {
        println!("{broken} runs could not be carried out");
    }
    Ok(i32::from(!summary.verdict.violations.is_empty() || broken > 0))
}

async fn hunt(settings: &Settings, runs: u64, seed: u64) -> anyhow::Result<i32> {
    let mut operations = 0;
    for seed in seed..seed.saturating_add(runs) {
        let report = settings.run(seed, false).await?;
        if let Some(violation) = report.verdict.violations.first() {
            let found_at = report.verdict.found_at.unwrap_or(report.verdict.operations);
            println!(
                "found after {} operations (seed {seed}): {violation}",
                operations + found_at
            );
            return Ok(0);
        }
        operations += report.verdict.operations;
        println!("{} {report}", settings.backend.name());
    }
    println!("not found in {operations} operations");
    Ok(1)
}

async fn soak(
    workload: &Workload,
    mut backends: Vec<Backend>,
    seed: u64,
    during: Duration,
) -> anyhow::Result<i32> {
    if backends.is_empty() {
        backends = Backend::ALL.to_vec();
    }
    let mut worlds = Vec::new();
    for backend in backends {
        worlds.push(Soaked::start(workload.settings(backend)?, seed).await?);
    }
    let mut summaries: BTreeMap<&str, Summary> = BTreeMap::new();
    let mut broken = 0;
    go_on(&mut worlds, during, |world, report| match report {
        Ok(report) => {
            println!("{} {report}", world.name());
            for violation in &report.verdict.violations {
                println!("  {violation}");
            }
            summaries.entry(world.name()).or_default().add(report);
        }
        Err(error) => {
            broken += 1;
            println!("{} round could not be carried out: {error:#}", world.name());
        }
    })
    .await;
    let mut failed = broken > 0;
    for world in worlds {
        let name = world.name();
        let growth = world.stop().await;
        println!("{name} {}\n{growth}", summaries.entry(name).or_default());
        if !growth.is_flat() {
            println!("{name} has grown");
            failed = true;
        }
    }
    failed |= summaries.values().any(|summary| !summary.verdict.violations.is_empty());
    Ok(i32::from(failed))
}

async fn count(settings: &Settings, seed: u64, demonstrate: bool) -> anyhow::Result<i32> {
    if demonstrate {
        let as_it_must = register::demonstrate(settings, |line| println!("{line}")).await?;
        return Ok(i32::from(!as_it_must));
    }
    let during = settings.faults_for;
    let counts = register::increment_under_faults(settings, seed, true, during).await?;
    let register::Counts { writes, lost, repeated_reads, changed_reads, .. } = counts;
    println!(
        "seed {seed}: {writes} writes, {lost} lost; {repeated_reads} values read twice, \
         {changed_reads} changed meanwhile; {} calls refused for a stale token",
        counts.refused
    );
    Ok(i32::from(lost + changed_reads > 0 || !counts.is_exact))
}

fn random_seed() -> u64 {
    fastrand::u64(1..1_000_000_000)
}
