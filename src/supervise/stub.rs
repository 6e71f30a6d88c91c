//! Becomes the command: the supervisor's child, until it execs.
//!
//! It sets what only a process itself can set, and stops. So the supervisor has the time to tell
//! the lock process of it and to look at the deadline once more, and then lets it go on. A shell
//! may let it go on, too (`fg`), so the supervisor's word is a signal of its own.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt as _,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

use leasehold_util::exit;

use crate::say;

/// The arguments of the stub.
#[derive(Clone, Debug, clap::Args)]
pub struct StubArgs {
    /// The supervisor
    parent: i32,

    /// What to run
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl StubArgs {
    /// The command line of a stub, without the program.
    pub(crate) fn line(parent: Pid, command: &[OsString]) -> Vec<OsString> {
        let mut line =
            vec![STUB.into(), parent.as_raw_nonzero().to_string().into(), OsString::from("--")];
        line.extend_from_slice(command);
        line
    }
}

/// Tells a stub to become the command. By default this signal does nothing, so that it does not
/// matter to the command whether it was ignored at the start.
const START: Signal = Signal::URG;

/// The name of the hidden command.
pub const STUB: &str = "lock-stub";

/// Becomes the command. Returns the exit status if that fails.
#[must_use]
pub fn become_command(args: &StubArgs) -> u8 {
    // If the supervisor dies, the command must not run on without the lock.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err()
        || getppid() != Pid::from_raw(args.parent)
        || wait_for_start().is_err()
    {
        return exit::DEFECT;
    }
    let Some((program, arguments)) = args.command.split_first() else { return exit::USAGE };
    let error = Command::new(program).args(arguments).exec();
    say::line(&format!("{}: {error}", program.to_string_lossy().escape_debug()));
    if error.kind() == std::io::ErrorKind::NotFound {
        exit::NOT_FOUND
    } else {
        exit::CANNOT_RUN
    }
}

/// Tells a stub to become the command.
pub(crate) fn start(pid: Pid) -> io::Result<()> {
    kill_process(pid, START)?;
    Ok(kill_process(pid, Signal::CONT)?)
}

/// Whether a process is a stub, and not the command yet.
pub(crate) fn is_stub(pid: Pid) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(STUB.as_bytes())
}

/// Stops until the supervisor has sent [`START`].
fn wait_for_start() -> io::Result<()> {
    let may_start = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(START.as_raw(), Arc::clone(&may_start))?;
    while !may_start.load(Ordering::SeqCst) {
        kill_process(getpid(), Signal::STOP)?;
    }
    Ok(())
}
