//! The client processes of a round, and what is done to them.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use super::Settings;
use crate::{
    clock::now_ns,
    faults::{Injected, Voids},
};

/// What is done to client processes. Nothing of it excuses leasehold.
pub(crate) const FAULTS: &[&str] = &["client-killed", "client-suspended"];
/// How long a client process may take to end once told to.
const END_MAX: Duration = Duration::from_secs(30);

/// The client processes of one round.
#[derive(Debug)]
pub(super) struct Clients {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    children: Vec<Child>,
    /// The number of the next process; none is used twice.
    next: u32,
    rng: fastrand::Rng,
}

impl Clients {
    /// Starts them over these sockets.
    pub(super) fn start(
        settings: &Settings,
        names: &str,
        sockets: &[PathBuf],
        folder: &Path,
        rng: fastrand::Rng,
    ) -> anyhow::Result<Self> {
        let mut arguments = vec!["client".to_owned()];
        for socket in sockets {
            arguments.push(format!("--socket={}", socket.display()));
        }
        arguments.push(format!("--clients={}", settings.clients));
        arguments.push(format!("--pause-ms-max={}", settings.pause_ms_max));
        arguments.push(format!("--names={names}"));
        arguments.push(format!("--began-ns={}", now_ns()));
        let mut clients = Self {
            program: settings.program.clone(),
            arguments,
            folder: folder.to_owned(),
            children: Vec::new(),
            next: 1,
            rng,
        };
        for _ in 0..settings.client_processes {
            let child = clients.spawn()?;
            clients.children.push(child);
        }
        Ok(clients)
    }

    fn spawn(&mut self) -> anyhow::Result<Child> {
        let number = self.next;
        self.next += 1;
        let log = File::create(self.folder.join(format!("client-{number}.log")))?;
        let history = self.folder.join(format!("history-{number}.jsonl"));
        Command::new(&self.program)
            .args(&self.arguments)
            .arg(format!("--process={number}"))
            .arg(format!("--seed={}", self.rng.u64(..)))
            .arg(format!("--history={}", history.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))
    }

    /// Does one of [`FAULTS`] to one of them.
    pub(super) async fn inject(
        &mut self,
        name: &str,
        rng: &mut fastrand::Rng,
    ) -> anyhow::Result<Injected> {
        let from_ns = now_ns();
        let place = rng.usize(..self.children.len());
        let detail = if name == "client-killed" {
            let mut child = self.spawn()?;
            std::mem::swap(&mut child, &mut self.children[place]);
            child.kill().await?;
            format!("client process in place {place} killed, another started")
        } else {
            let during = Duration::from_millis(rng.u64(100..1_800));
            let id = self.children[place].id().and_then(|id| i32::try_from(id).ok());
            let process = id.and_then(Pid::from_raw).context("a client process ended early")?;
            kill_process(process, Signal::STOP)?;
            sleep(during).await;
            kill_process(process, Signal::CONT)?;
            format!("client process in place {place} suspended for {during:?}")
        };
        let (name, over_ns) = (name.to_owned(), now_ns());
        Ok(Injected {
            name,
            detail,
            from_ns,
            over_ns,
            until_ns: over_ns,
            voids: Voids::Nothing,
        })
    }

    /// Has all of them end their last calls.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for mut child in self.children {
            let status = timeout(END_MAX, child.wait())
                .await
                .context("a client process does not end")??;
            anyhow::ensure!(
                status.success(),
                "a client process ended with {status}; see its log"
            );
        }
        Ok(())
    }
}
