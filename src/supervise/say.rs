//! Lines for the user, which never make the supervisor wait.

use std::io::Write as _;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    stdio,
};

use crate::{
    protocol::{LINE_BYTES_MAX, cut},
    terminal,
};

/// How much the user wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// Writes a line to stderr, or drops it if that would wait for a reader.
pub(crate) fn line(text: &str) {
    if !takes_bytes() || terminal::stops_writers() {
        return;
    }
    let shown = cut(text, LINE_BYTES_MAX)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>();
    let _ = std::io::stderr().write_all(format!("leasehold lock: {shown}\n").as_bytes());
}

fn takes_bytes() -> bool {
    let stderr = stdio::stderr();
    let mut waiting = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut waiting, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && waiting[0].revents().contains(PollFlags::OUT)
}
