//! Exit statuses of the commands, as `sysexits.h` and shells have them.
//!
//! 124 and 125 are left to timeout(1), which often starts `leasehold lock` or is started by it.

/// Nothing was found: a free resource, nothing to end.
pub const NOTHING: u8 = 1;
/// A wrong command line, configuration or name, or a call that the store does not support
/// (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// The store was not reached, or the outcome is unknown (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// A defect (`EX_SOFTWARE`).
pub const DEFECT: u8 = 70;
/// The lock was not acquired (`EX_TEMPFAIL`).
pub const NOT_ACQUIRED: u8 = 75;
/// Credentials or permissions were refused (`EX_NOPERM`).
pub const REFUSED: u8 = 77;
/// The command was ended because of the lock, or the lock ended before the command.
pub const LOST: u8 = 79;
/// The command was found, and cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// Nobody reads the output any more: that of a process that SIGPIPE has ended.
pub const CLOSED_PIPE: u8 = 128 + 13;

/// That of a process which this signal has ended.
#[must_use]
pub fn of_signal(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| number.saturating_add(128))
}
