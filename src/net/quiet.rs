//! How long a drain leaves connections open, on which holders can renew and unlock.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long that may be at most.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
/// Clients that are still connected have finished renewing and unlocking when they were
/// silent for so long.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_POLL: Duration = Duration::from_millis(20);

/// Waits until nobody is connected, or `calls` has not changed for a while. Returns whether
/// that came in time.
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
