//! The supervisor's children: the command, what the command has left behind, and others.

use std::{collections::BTreeSet, io};

use rustix::process::{Pid, Signal, getpgid, getpid, kill_process, kill_process_group};

use crate::processes::{self, Child};

/// The children of this process.
///
/// The command is not waited for before the end, so that its process ID, which is also that of
/// its group, cannot be another's.
#[derive(Debug)]
pub(crate) struct Family {
    lock_process: Pid,
    /// Children that this process had before: it was started by `exec` of a shell that had some.
    others: BTreeSet<i32>,
    /// Those that were killed, until they are waited for.
    killed: BTreeSet<i32>,
}

impl Family {
    pub(crate) fn new(lock_process: Pid, others: Vec<Pid>) -> Self {
        let others = others.into_iter().map(Pid::as_raw_pid).collect();
        Self { lock_process, others, killed: BTreeSet::new() }
    }

    /// The lock process.
    pub(crate) fn lock_process(&self) -> Pid {
        self.lock_process
    }

    /// The children that are neither the command's nor the lock process.
    pub(crate) fn others(&self) -> Vec<Pid> {
        self.others.iter().filter_map(|raw| Pid::from_raw(*raw)).collect()
    }

    /// Waits for the children that have ended, but for the command. Returns whether anything of
    /// the command is left.
    pub(crate) fn look(&mut self, command: Option<Pid>) -> io::Result<bool> {
        for child in self.all()? {
            if Some(child) != command && processes::reap(child) {
                self.others.remove(&child.as_raw_pid());
                self.killed.remove(&child.as_raw_pid());
            }
        }
        // Read again: an orphan is listed before its parent can be waited for.
        Ok(!self.left(command)?.is_empty())
    }

    /// What is left of the command.
    pub(crate) fn left(&self, command: Option<Pid>) -> io::Result<Vec<Pid>> {
        // Before the list: only if it has ended then, the list has all of its orphans.
        let ended = command.filter(|pid| matches!(processes::look(*pid), Child::Ended(_)));
        let mut left = self.all()?;
        let is_others = |child: &Pid| self.others.contains(&child.as_raw_pid());
        left.retain(|child| !is_others(child) && Some(*child) != ended);
        Ok(left)
    }

    /// Kills what is left, unless that was done before.
    pub(crate) fn kill(&mut self, command: Option<Pid>) -> io::Result<()> {
        for child in self.left(command)? {
            if self.killed.insert(child.as_raw_pid()) {
                // It may be another user's.
                let _ = kill_process(child, Signal::KILL);
            }
        }
        Ok(())
    }

    /// Sends a signal, followed by CONT.
    pub(crate) fn signal(
        &self,
        command: Pid,
        leads_group: bool,
        signal: Signal,
        to_orphans: bool,
    ) -> io::Result<()> {
        if leads_group {
            // Nobody may be left in it.
            let _ = kill_process_group(command, signal);
            let _ = kill_process_group(command, Signal::CONT);
        }
        if leads_group && !to_orphans {
            return Ok(());
        }
        for child in self.left(Some(command))? {
            if leads_group && getpgid(Some(child)) == Ok(command) {
                continue;
            }
            let _ = kill_process(child, signal);
            let _ = kill_process(child, Signal::CONT);
        }
        Ok(())
    }

    fn all(&self) -> io::Result<Vec<Pid>> {
        let mut all = processes::children(getpid())?;
        all.retain(|child| *child != self.lock_process);
        Ok(all)
    }
}
