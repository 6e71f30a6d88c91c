//! Many processes increment and read at once, and are suspended and killed meanwhile.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::Register;
use crate::run::Settings;

/// Which of the processes read; the others increment.
const READS: [bool; 7] = [false, true, false, true, false, true, false];
const END_MAX: Duration = Duration::from_secs(30);

/// A worker to be started.
pub(super) struct Worker {
    pub(super) program: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) register: PathBuf,
    pub(super) checks_tokens: bool,
    pub(super) process: u32,
    pub(super) history: PathBuf,
    pub(super) reads: bool,
    pub(super) times: Option<u64>,
    pub(super) compute_ms: u64,
    pub(super) ttl_ms: u64,
}

/// The final counts of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Writes that were accepted.
    pub writes: u64,
    /// Of those, writes that overwrote an unseen update.
    pub lost: u64,
    /// Values that were read and found again under the same shared lock.
    pub repeated_reads: u64,
    /// Values that were read and found changed under the same shared lock.
    pub changed_reads: u64,
    /// Reads and writes that were refused for their token.
    pub refused: u64,
    /// Whether its value is the number of writes.
    pub is_exact: bool,
}

/// Runs several processes that increment one register, and others that read it; one after
/// the other is suspended past its TTL or killed.
pub async fn increment_under_faults(
    settings: &Settings,
    seed: u64,
    checks_tokens: bool,
    during: Duration,
) -> anyhow::Result<Counts> {
    let world = settings.start(seed).await?;
    let folder = settings.folder_of(seed);
    let register = folder.join("register");
    let sockets = world.sockets();
    let mut rng = fastrand::Rng::with_seed(seed);
    let worker = |process: u32, reads: bool| Worker {
        program: settings.program.clone(),
        socket: sockets[process as usize % sockets.len()].clone(),
        register: register.clone(),
        checks_tokens,
        process,
        history: folder.join(format!("history-{process}.jsonl")),
        reads: reads && settings.backend.is_shared(),
        times: None,
        compute_ms: 5,
        ttl_ms: 300,
    };
    let mut numbers = 1..;
    let mut children = Vec::new();
    for (process, reads) in numbers.by_ref().zip(READS) {
        children.push(spawn_worker(&worker(process, reads))?);
    }
    let until = Instant::now() + during;
    while Instant::now() < until {
        sleep(Duration::from_millis(rng.u64(50..300))).await;
        let index = rng.usize(..READS.len());
        let child = &mut children[index];
        signal(child, Signal::STOP)?;
        sleep(Duration::from_millis(rng.u64(100..900))).await;
        if rng.u8(..5) == 0 {
            child.kill().await?;
            let process = numbers.next().unwrap_or(u32::MAX);
            *child = spawn_worker(&worker(process, READS[index]))?;
        } else {
            signal(child, Signal::CONT)?;
        }
    }
    for mut child in children {
        drop(child.stdin.take());
        timeout(END_MAX, child.wait()).await.context("a worker does not end")??;
    }
    let content = Register::open(&register, checks_tokens)?.content()?;
    world.stop().await;
    std::fs::remove_dir_all(&folder)?;
    Ok(Counts {
        writes: content.writes,
        lost: content.lost,
        repeated_reads: content.repeated_reads,
        changed_reads: content.changed_reads,
        refused: content.refused,
        is_exact: content.value == content.writes,
    })
}

pub(super) fn spawn_worker(worker: &Worker) -> anyhow::Result<Child> {
    let mut command = Command::new(&worker.program);
    command
        .arg("worker")
        .arg(format!("--socket={}", worker.socket.display()))
        .arg(format!("--register={}", worker.register.display()))
        .arg(format!("--process={}", worker.process))
        .arg(format!("--history={}", worker.history.display()))
        .arg(format!("--compute-ms={}", worker.compute_ms))
        .arg(format!("--ttl-ms={}", worker.ttl_ms));
    if !worker.checks_tokens {
        command.arg("--unchecked");
    }
    if worker.reads {
        command.arg("--reads");
    }
    if let Some(times) = worker.times {
        command.arg(format!("--times={times}"));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().with_context(|| format!("starting {}", worker.program.display()))
}

pub(super) fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    let process = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    Ok(kill_process(process.context("a worker ended early")?, signal)?)
}
