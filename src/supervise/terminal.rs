//! Whether the command shares the terminal's foreground with a shell.

use rustix::{
    fs::{Mode, OFlags, open},
    process::getpgrp,
    stdio::stderr,
    termios::{LocalModes, tcgetattr, tcgetpgrp},
};

/// Whether the foreground process group of the controlling terminal is this process's. A command
/// in a group of its own would be stopped as soon as it read from the terminal.
pub(crate) fn is_in_foreground() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let terminal = open("/dev/tty", flags, Mode::empty());
    terminal.is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

/// Whether a write to stderr would stop this process: it is in the background, and the terminal
/// lets no background process write.
pub(crate) fn stops_writers() -> bool {
    let stderr = stderr();
    tcgetattr(stderr).is_ok_and(|modes| modes.local_modes.contains(LocalModes::TOSTOP))
        && tcgetpgrp(stderr) != Ok(getpgrp())
}
