//! Waits until nothing is left, or until leftovers would have ended.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The longest TTL that a run's clients ask for, and what expiry, a dead
/// process's session and a lost connection's clean-up add to it.
const GONE_WITHIN: Duration = Duration::from_secs(45);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The leftovers at the end; returns early if there are none.
pub(super) async fn settle(
    mut look: impl AsyncFnMut() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<Vec<String>> {
    let give_up = Instant::now() + GONE_WITHIN;
    loop {
        let left = look().await;
        // On a busy machine a server may not answer in time.
        if left.as_ref().is_ok_and(Vec::is_empty) || Instant::now() >= give_up {
            return left;
        }
        sleep(LOOK_INTERVAL).await;
    }
}
