//! The file descriptors of the process, and how many of them its clients may take.

use std::{io, os::fd::AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most descriptors that are kept for connections to backends, the app and daprd.
const RESERVE_MAX: u64 = 2_048;

/// Raises the limit of open files to the most that this process may have.
///
/// # Errors
///
/// The system refuses.
pub fn raise_limit() -> io::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(())
}

/// How many descriptors clients may not take: a quarter of the limit, within bounds.
pub fn reserve() -> u64 {
    (limit() / 4).min(RESERVE_MAX)
}

/// Whether a new descriptor is one of the reserve. Each descriptor gets the lowest number that
/// is free, so its number shows how many are in use at least.
pub fn is_reserved(descriptor: &impl AsRawFd) -> bool {
    u64::try_from(descriptor.as_raw_fd()).is_ok_and(|number| number >= limit() - reserve())
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
