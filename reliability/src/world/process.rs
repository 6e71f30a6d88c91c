//! A child process that is killed, paused and started again.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::Context as _;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// A program that can be started again with the same arguments; killed when
/// dropped.
#[derive(Debug)]
pub struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A program that does not run yet, and what it writes goes to `log`.
    pub fn new(program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            log: log.into(),
            child: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|it| it.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Starts it, if it does not run.
    pub fn start(&mut self) -> anyhow::Result<()> {
        if self.runs() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// How it ended, if nobody here ended it.
    pub fn ended_by_itself(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Its ID while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.with_context(|| format!("{} does not run", self.program.display()))?;
        Ok(kill_process(id, signal)?)
    }

    /// Ends it without any warning.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().await;
        }
    }

    /// Asks it to end, and waits until it has.
    pub async fn terminate(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let child = self.child.as_mut().context("it does not run")?;
        let status = timeout(within, child.wait()).await.with_context(|| {
            format!("{} still runs {within:?} after SIGTERM", self.program.display())
        })??;
        self.child = None;
        Ok(status)
    }

    /// Where it writes.
    pub fn log(&self) -> &PathBuf {
        &self.log
    }
}
