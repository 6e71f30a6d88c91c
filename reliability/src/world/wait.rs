//! Waiting until something holds, with an end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Asks until there is an answer; after `within` the last error is the result.
pub async fn eventually<T>(
    within: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let give_up = Instant::now() + within;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) if Instant::now() >= give_up => {
                return Err(error.context(format!("{what}: not within {within:?}")));
            }
            Err(_) => sleep(LOOK_INTERVAL).await,
        }
    }
}
