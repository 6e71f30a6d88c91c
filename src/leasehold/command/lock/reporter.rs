//! What the lock process reports to its supervisor.

use std::{
    io::{self, Write},
    sync::Arc,
};

use leasehold_supervise::{BootTime, Report, Reports};
use parking_lot::Mutex;

/// The way to the supervisor, which the log shares.
#[derive(Clone)]
pub(super) struct Reporter(Arc<Mutex<Reports>>);

impl Reporter {
    pub(super) fn new(reports: Reports) -> Self {
        Self(Arc::new(Mutex::new(reports)))
    }

    pub(super) fn send(&self, report: &Report) {
        self.0.lock().send(report);
    }

    /// Another caller has ended the lock.
    pub(super) fn forced(&self) {
        self.0.lock().forced();
    }

    pub(super) fn note_deadline(&self, deadline: BootTime) {
        self.0.lock().note_deadline(deadline);
    }

    pub(super) fn say(&self, text: String) {
        self.0.lock().send_if_read(&Report::Say(text));
    }
}

/// Each write is a whole line of the log.
impl Write for Reporter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(String::from_utf8_lossy(line).trim().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
