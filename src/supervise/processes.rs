//! The children of a process, and what /proc says of others.

use std::{fs, io};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open,
    pidfd_send_signal, waitid,
};

use leasehold_util::exit;

use crate::protocol;

/// The children of a process: of all its threads, because an orphan becomes the child of any.
/// Those that have ended and were not waited for are among them.
pub(crate) fn children(of: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{of}/task"))? {
        let path = thread?.path().join("children");
        match fs::read_to_string(&path) {
            Ok(text) => {
                children.extend(text.split_ascii_whitespace().filter_map(protocol::pid));
            }
            // The thread has ended, or the kernel is built without these files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.parent().is_some_and(std::path::Path::exists) {
                    return by_parent(of);
                }
            }
            Err(error) if error.raw_os_error() == Some(ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

/// The answer for a process that ended while its file was open.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// The children of a process, from a list of all processes.
fn by_parent(of: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(protocol::pid) else { continue };
        if parent(pid) == Some(of) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// The parent of a process, if it lives.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it, in parentheses, may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    protocol::pid(rest.split_ascii_whitespace().nth(1)?)
}

/// Kills a child of another process. Does nothing if its ID is another process's by now. Returns
/// whether the signal was sent.
pub(crate) fn kill_child_of(pid: Pid, of: Pid) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    parent(pid) == Some(of) && pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// The name of a process's program, for people.
pub(crate) fn name(pid: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} ({pid})", name.trim_end().escape_debug())
}

/// Whether a child has ended, which leaves it to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Lives,
    /// With this exit status.
    Ended(u8),
    /// It is no child, or was waited for.
    Gone,
}

/// Looks whether a child has ended.
pub(crate) fn look(pid: Pid) -> Child {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => Child::Ended(exit_status(&status)),
        Ok(None) => Child::Lives,
        Err(_) => Child::Gone,
    }
}

/// Whether a child has stopped since it was last asked for.
pub(crate) fn has_stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// Waits for a child that has ended. Returns whether it had.
pub(crate) fn reap(pid: Pid) -> bool {
    let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    matches!(ended, Ok(Some(_)))
}

/// Waits until a child that was killed has ended.
pub(crate) fn reap_killed(pid: Pid) {
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED) {}
}

fn exit_status(status: &WaitIdStatus) -> u8 {
    if let Some(signal) = status.terminating_signal() {
        return exit::of_signal(signal);
    }
    status.exit_status().and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::getpid;

    use super::*;

    #[allow(clippy::zombie_processes, reason = "it is waited for by its ID")]
    fn spawned(program: &str, argument: &str) -> Pid {
        let child = Command::new(program).arg(argument).spawn().unwrap();
        Pid::from_child(&child)
    }

    #[test]
    fn a_child_is_listed_until_it_was_waited_for() {
        let pid = spawned("sleep", "1000");
        for list in [children, by_parent] {
            assert!(list(getpid()).unwrap().contains(&pid));
        }
        assert_eq!(look(pid), Child::Lives);
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        while !has_stopped(pid) {
            assert_eq!(look(pid), Child::Lives);
        }
        assert!(!has_stopped(pid));
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        while look(pid) == Child::Lives {
            std::thread::yield_now();
        }
        assert_eq!(look(pid), Child::Ended(137));
        assert!(children(getpid()).unwrap().contains(&pid));
        assert!(reap(pid));
        assert!(!children(getpid()).unwrap().contains(&pid));
        assert_eq!(look(pid), Child::Gone);
    }

    #[test]
    fn only_a_child_of_the_named_parent_is_killed() {
        let pid = spawned("sleep", "1000");
        assert!(!kill_child_of(pid, Pid::INIT));
        assert_eq!(look(pid), Child::Lives);
        assert!(kill_child_of(pid, getpid()));
        while look(pid) == Child::Lives {
            std::thread::yield_now();
        }
        assert!(kill_child_of(pid, getpid()), "it has ended, and was not waited for");
        reap_killed(pid);
        assert_eq!(look(pid), Child::Gone);
    }
}
