//! A child process that can be killed, suspended and started again.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, OpenOptions},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, bail};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::wait::eventually;

const STOP_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Ten seconds.
const STOP_POLLS_MAX: u32 = 10_000;

/// A program that can be started again with the same arguments; killed when dropped.
#[derive(Debug)]
pub struct Process {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    log: Option<PathBuf>,
    child: Option<Child>,
    /// The exit status of `child`, once its end was noticed.
    ended: Option<ExitStatus>,
}

impl Process {
    /// A program that does not run yet. Its output is discarded.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            log: None,
            child: None,
            ended: None,
        }
    }

    /// Appends its output to `file`.
    #[must_use]
    pub fn log_to(mut self, file: impl Into<PathBuf>) -> Self {
        self.log = Some(file.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments(mut self, arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|it| it.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.set_variable(name, value);
        self
    }

    /// Sets an environment variable for its next start.
    pub fn set_variable(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
    }

    /// Starts it, unless it is running.
    pub fn start(&mut self) -> anyhow::Result<()> {
        if self.runs() {
            return Ok(());
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        match &self.log {
            Some(file) => {
                let log = OpenOptions::new().create(true).append(true).open(file)?;
                command.stdout(log.try_clone()?).stderr(log);
            }
            None => {
                command.stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let child = command.spawn();
        let child =
            child.with_context(|| format!("cannot start {}", self.program.display()))?;
        (self.child, self.ended) = (Some(child), None);
        Ok(())
    }

    /// Whether it was started and has not ended.
    pub fn runs(&mut self) -> bool {
        self.child.is_some() && self.ended_by_itself().is_none()
    }

    /// How it ended, unless it was ended by [`kill`](Self::kill) or
    /// [`terminate`](Self::terminate).
    pub fn ended_by_itself(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        }
        self.ended
    }

    /// Its process ID, as long as its end was not noticed.
    pub fn id(&self) -> Option<u32> {
        // Afterwards, the ID may be reused by another process.
        self.child.as_ref().filter(|_| self.ended.is_none()).map(Child::id)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.with_context(|| format!("{} does not run", self.program.display()))?;
        Ok(kill_process(id, signal)?)
    }

    /// Suspends it: its connections stay open, and it answers nothing. Returns once each of its
    /// threads has stopped, because on a busy machine one may still answer a call after the signal
    /// was sent. Blocks the thread.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        for _ in 0..STOP_POLLS_MAX {
            if self.has_stopped()? {
                return Ok(());
            }
            sleep(STOP_POLL_INTERVAL);
        }
        bail!("{} did not stop", self.program.display())
    }

    fn has_stopped(&self) -> anyhow::Result<bool> {
        let id = self.id().with_context(|| format!("{} has ended", self.program.display()))?;
        for thread in fs::read_dir(format!("/proc/{id}/task"))? {
            // A thread that has ended has no state.
            let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
            // The state follows the name, which is in parentheses and may contain anything.
            let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            if !state.starts_with('T') {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Resumes it after [`suspend`](Self::suspend).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Ends it with SIGKILL, and returns once it has ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.ended = None;
    }

    /// Sends it SIGTERM, and returns once it has ended.
    pub async fn terminate(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let what = format!("{} ends after SIGTERM", self.program.display());
        let status = eventually(within, &what, async || {
            self.ended_by_itself().context("it is still running")
        })
        .await?;
        (self.child, self.ended) = (None, None);
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
