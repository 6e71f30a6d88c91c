//! The early end of a run: the store is gone, or the time is over.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use tokio::time::Instant;

use crate::words::Readable;

/// How long the cases of a run may take together. A run on a fast store takes 15 to 40 s.
const RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// Whether the remaining cases are still worth running.
pub(crate) struct Stop {
    socket: PathBuf,
    began_at: Instant,
    reason: OnceLock<String>,
}

impl Stop {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), began_at: Instant::now(), reason: OnceLock::new() }
    }

    /// Why no further case is run; `None` if the run continues.
    pub(crate) fn reason(&self) -> Option<String> {
        if self.began_at.elapsed() > RUN_MAX {
            self.reason
                .get_or_init(|| format!("the run took longer than {}", Readable(RUN_MAX)));
        }
        self.reason.get().cloned()
    }

    /// Stops the run if the store no longer listens after this case.
    pub(crate) fn look_after(&self, case: &str) {
        if UnixStream::connect(&self.socket).is_err() {
            self.reason.get_or_init(|| {
                let after = Readable(self.began_at.elapsed());
                format!("the store went away during `{case}`, {after} after the run began")
            });
        }
    }
}
