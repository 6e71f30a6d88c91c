//! The newest safe deadline, which the lock process writes and the supervisor reads.
//!
//! It is in 8 bytes of shared memory and not in the pipe, which would be full after the
//! supervisor had been stopped for long.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{self, pread, pwrite},
};

use crate::BootTime;

const SIZE: usize = size_of::<u64>();

/// A deadline that two processes share.
#[derive(Debug)]
pub(crate) struct SharedDeadline(OwnedFd);

impl SharedDeadline {
    pub(crate) fn new() -> io::Result<Self> {
        let memory = memfd_create("leasehold-deadline", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, SIZE as u64)?;
        Ok(Self(memory))
    }

    pub(crate) fn of_descriptor(memory: OwnedFd) -> Self {
        Self(memory)
    }

    /// Notes a new deadline.
    pub(crate) fn write(&self, deadline: BootTime) -> io::Result<()> {
        pwrite(&self.0, &deadline.0.to_ne_bytes(), 0).map(|_| ())
    }

    /// The newest deadline. A read is repeated if a write may have come in between.
    pub(crate) fn read(&self) -> io::Result<BootTime> {
        let mut last = self.read_once()?;
        loop {
            let again = self.read_once()?;
            if again == last {
                return Ok(BootTime(again));
            }
            last = again;
        }
    }

    fn read_once(&self) -> io::Result<u64> {
        let mut bytes = [0; SIZE];
        pread(&self.0, &mut bytes, 0)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 3).map(Self)
    }
}

impl AsFd for SharedDeadline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_deadline_is_read_through_another_descriptor() {
        let shared = SharedDeadline::new().unwrap();
        let other = SharedDeadline::of_descriptor(shared.0.try_clone().unwrap());
        assert_eq!(other.read().unwrap(), BootTime(0));
        for deadline in [1, u64::MAX, 7] {
            shared.write(BootTime(deadline)).unwrap();
            assert_eq!(other.read().unwrap(), BootTime(deadline));
        }
    }
}
