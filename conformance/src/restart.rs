//! How the store under test is restarted.

use std::{fmt, process::Command, sync::Arc};

use anyhow::{Context as _, ensure};

/// Restarts the store: ends its process and starts it again, on the same socket and backend.
#[derive(Clone)]
pub struct Restart(Arc<dyn Fn() -> anyhow::Result<()> + Send + Sync>);

impl Restart {
    /// A restart by a function, which may block.
    pub fn new(restart: impl Fn() -> anyhow::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(restart))
    }

    /// A restart by a shell command, which must end once the store is starting.
    #[must_use]
    pub fn command(command: String) -> Self {
        Self::new(move || {
            let status = Command::new("sh").arg("-c").arg(&command).status();
            let status = status.with_context(|| format!("cannot run `{command}`"))?;
            ensure!(status.success(), "the restart command `{command}` failed: {status}");
            Ok(())
        })
    }

    pub(crate) fn run(&self) -> anyhow::Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Restart")
    }
}
