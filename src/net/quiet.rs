//! How long a drain leaves connections open for renewals and unlocks.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// The longest time that connections stay open.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
/// After this long without a call, connected clients count as finished.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_POLL: Duration = Duration::from_millis(20);

/// Waits until nobody is connected, or `calls` has not changed for a while. Returns whether
/// that happened in time.
pub async fn quiet(is_idle: impl Fn() -> bool, calls: impl Fn() -> u64) -> bool {
    let quiet = async {
        let (mut seen, mut since) = (calls(), Instant::now());
        while !is_idle() && since.elapsed() < QUIET {
            sleep(QUIET_POLL).await;
            let calls = calls();
            if calls != seen {
                (seen, since) = (calls, Instant::now());
            }
        }
    };
    timeout(QUIET_WITHIN, quiet).await.is_ok()
}
