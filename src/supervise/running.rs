//! The command, from its stub to its end.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::{
    Job,
    machine::Event,
    processes::{self, Child},
    stub::{self, StubArgs},
};

/// This program, even if its file was replaced since.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";
/// Variables that the command does not get.
const SECRETS: [&str; 2] = ["LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"];

/// The command, or the stub that becomes it.
pub(crate) struct Running {
    pub(crate) pid: Pid,
    /// Whether it has a process group of its own.
    pub(crate) leads_group: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A stub that has not stopped yet.
    Spawned,
    /// A stub that has stopped, and waits for its start.
    Prepared,
    /// A stub that may become the command.
    Started,
    Command,
}

impl Running {
    /// Starts the stub, which stops before it becomes the command.
    pub(crate) fn prepare(
        job: &Job<'_>,
        token: Option<u64>,
        leads_group: bool,
    ) -> io::Result<Self> {
        let mut stub = Command::new(THIS_PROGRAM);
        stub.args(StubArgs::line(getpid(), &job.options.command))
            .env("LEASEHOLD_RESOURCE", &job.options.resource)
            .env("LEASEHOLD_STORE_NAME", job.store)
            .stdin(Stdio::inherit());
        match token {
            Some(token) => stub.env("LEASEHOLD_FENCING_TOKEN", token.to_string()),
            None => stub.env_remove("LEASEHOLD_FENCING_TOKEN"),
        };
        for secret in SECRETS {
            stub.env_remove(secret);
        }
        if leads_group {
            stub.process_group(0);
        }
        let pid = Pid::from_child(&stub.spawn()?);
        Ok(Self { pid, leads_group, stage: Stage::Spawned })
    }

    /// Lets the stub become the command.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.stage = Stage::Started;
        stub::start(self.pid)
    }

    /// Ends a stub that must not become the command.
    pub(crate) fn withdraw(self) {
        let _ = kill_process(self.pid, Signal::KILL);
        processes::reap_killed(self.pid);
    }

    /// Whether it is the command, and not the stub any more.
    pub(crate) fn is_command(&self) -> bool {
        self.stage == Stage::Command
    }

    /// What has happened to it since. [`Event::NotStarted`] is its last event.
    pub(crate) fn look(&mut self) -> io::Result<Option<Event>> {
        let event = match (processes::look(self.pid), self.stage) {
            (Child::Lives, Stage::Spawned) if processes::has_stopped(self.pid) => {
                self.stage = Stage::Prepared;
                Some(Event::Ready)
            }
            (Child::Lives, Stage::Started) => {
                if !stub::is_stub(self.pid) {
                    self.stage = Stage::Command;
                } else if processes::has_stopped(self.pid) {
                    // Something else had stopped it before it listened for its start, so that
                    // it has stopped once more, by itself.
                    stub::start(self.pid)?;
                }
                None
            }
            (Child::Ended(exit), Stage::Started | Stage::Command) => {
                Some(Event::Ended { exit })
            }
            (Child::Ended(exit), Stage::Spawned | Stage::Prepared) => {
                processes::reap(self.pid);
                Some(Event::NotStarted { exit })
            }
            (Child::Lives | Child::Gone, _) => None,
        };
        Ok(event)
    }
}
