//! Polling with a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Calls `ask` until it returns `Ok`. After `within` its last error is returned, with
/// `what` as context.
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
            Err(_) => sleep(POLL_INTERVAL).await,
        }
    }
}
