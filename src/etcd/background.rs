//! Background tasks, which end with the backend.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Starts tasks and ends them together.
#[derive(Clone, Debug, Default)]
pub(super) struct Background {
    tasks: TaskTracker,
    closed: CancellationToken,
}

impl Background {
    /// Runs `work` until it ends or the backend closes.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Waits until the backend closes.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Asks all tasks to end.
    pub(super) fn stop(&self) {
        self.closed.cancel();
    }

    /// Ends all tasks.
    pub(super) async fn close(&self) {
        self.stop();
        self.tasks.close();
        // All tasks end at their next await.
        let _ = timeout(Duration::from_secs(1), self.tasks.wait()).await;
    }
}
