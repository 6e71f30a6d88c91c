//! The signals that ask the process to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Ends when SIGTERM or SIGINT comes. Where they cannot be listened for, never.
pub async fn stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
