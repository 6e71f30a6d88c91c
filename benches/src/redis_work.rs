//! The work of a Redis server.

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;

/// Counts of commands since the server's start.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Every command, those inside scripts included.
    pub(crate) all: u64,
    /// Scripts, which are all that a lock service sends: other commands run inside them.
    pub(crate) scripts: u64,
}

/// Reads a server's counts.
pub(crate) async fn work(connection: &mut MultiplexedConnection) -> Result<Work> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await?;
    let (mut all, mut scripts) = (0, 0);
    for line in stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").context("a commandstats line")?;
        let calls: u64 = rest.split(',').next().unwrap_or_default().parse()?;
        all += calls;
        if name.starts_with("eval") || name == "fcall" {
            scripts += calls;
        }
    }
    Ok(Work { all, scripts })
}
