//! The lost update, step by step: a holder is suspended past its TTL.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::{
    Register,
    store::Content,
    workload::{Worker, signal, spawn_worker},
};
use crate::run::Settings;

const TTL_MS: u64 = 500;
/// How long the first holder computes: it is suspended meanwhile.
const COMPUTE_MS: u64 = 3_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Suspends a holder past its TTL while another increments: without a check of
/// tokens an update is lost, with it none is. Reports each step to `report`.
/// Returns whether the result is as expected.
pub async fn demonstrate(settings: &Settings, report: impl Fn(&str)) -> anyhow::Result<bool> {
    let world = settings.start(0).await?;
    let folder = settings.folder_of(0);
    let socket = world.sockets().into_iter().next().context("no leasehold process")?;
    let mut as_it_must = true;
    for checks_tokens in [false, true] {
        report(if checks_tokens {
            "With the token checked by the register:"
        } else {
            "Without a check of tokens:"
        });
        let content = once(settings, &socket, &folder, checks_tokens, &report).await?;
        let Content { value, writes, lost, refused, .. } = content;
        report(&format!(
            "  the register is {value} after {writes} writes: {lost} lost, {refused} refused"
        ));
        as_it_must &= if checks_tokens { lost == 0 && refused > 0 } else { lost > 0 };
    }
    world.stop().await;
    std::fs::remove_dir_all(&folder)?;
    Ok(as_it_must)
}

async fn once(
    settings: &Settings,
    socket: &Path,
    folder: &Path,
    checks_tokens: bool,
    report: &impl Fn(&str),
) -> anyhow::Result<Content> {
    let path = folder.join(format!("register-{checks_tokens}"));
    let mut register = Register::open(&path, checks_tokens)?;
    let worker = |process: u32, compute_ms| Worker {
        program: settings.program.clone(),
        socket: PathBuf::from(socket),
        register: path.clone(),
        checks_tokens,
        process,
        history: folder.join(format!("history-{process}.jsonl")),
        reads: false,
        times: Some(1),
        compute_ms,
        ttl_ms: TTL_MS,
    };
    let first_number = if checks_tokens { 3 } else { 1 };
    let mut first = spawn_worker(&worker(first_number, COMPUTE_MS))?;
    let until = Instant::now() + PATIENCE;
    while register.content()?.read_fence == 0 {
        anyhow::ensure!(Instant::now() < until, "the first holder does not read");
        sleep(Duration::from_millis(5)).await;
    }
    signal(&first, Signal::STOP)?;
    report(&format!("  A holds for {TTL_MS} ms, has read 0, and is suspended"));
    let second = spawn_worker(&worker(first_number + 1, 0))?.wait().await?;
    anyhow::ensure!(second.success(), "the second holder failed");
    report(&format!(
        "  B waits for the lock, gets it at the TTL's end, and writes {}",
        register.content()?.value
    ));
    signal(&first, Signal::CONT)?;
    report(if checks_tokens {
        "  A goes on, is refused, and begins again with a new grant"
    } else {
        "  A goes on, and writes 1 too"
    });
    anyhow::ensure!(first.wait().await?.success(), "the first holder failed");
    register.content()
}
