//! The signals that the supervisor receives.

use std::{fs, io, os::unix::net::UnixStream};

use signal_hook::{
    consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::{backend::SignalDelivery, exfiltrator::origin::WithOrigin},
    low_level::siginfo::Cause,
};

/// Those that are for the command.
pub(crate) const FOR_COMMAND: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];
/// Those that only wake the supervisor: a child has changed, or it was stopped itself.
const WAKING: [i32; 2] = [SIGCHLD, SIGCONT];

/// The signals since they were last taken.
pub(crate) struct Signals(SignalDelivery<UnixStream, WithOrigin>);

/// A signal for the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) number: i32,
    /// Whether the terminal has sent it, to the whole foreground group.
    pub(crate) by_keyboard: bool,
}

impl Signals {
    /// Listens. A signal that is ignored (`nohup` does that to SIGHUP) stays so, also in the
    /// command.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored()?;
        let is_ignored = |number: i32| ignored >> (number - 1) & 1 == 1;
        let signals = FOR_COMMAND.into_iter().filter(|number| !is_ignored(*number));
        let (read, write) = UnixStream::pair()?;
        let signals = signals.chain(WAKING);
        SignalDelivery::with_pipe(read, write, WithOrigin::default(), signals).map(Self)
    }

    /// Becomes readable when there is a signal.
    pub(crate) fn source(&self) -> &UnixStream {
        self.0.get_read()
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Received> {
        self.0.pending().filter(|origin| !WAKING.contains(&origin.signal)).map(|origin| {
            Received {
                number: origin.signal,
                by_keyboard: matches!(origin.cause, Cause::Kernel),
            }
        })
    }
}

/// The set of ignored signals, the lowest bit being that of signal 1.
fn ignored() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.ok_or_else(|| io::Error::other("/proc/self/status has no SigIgn"))
}

/// Does nothing at these signals from now on.
pub(crate) fn outlive(numbers: &[i32]) -> io::Result<()> {
    for number in numbers {
        signal_hook::flag::register(*number, std::sync::Arc::default())?;
    }
    Ok(())
}
