//! Accepts connections, up to a limit.

use std::{sync::Arc, time::Duration};

use leasehold_util::descriptors;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use super::listener::{Listener, Stream};

/// How long to pause after a connection could not be accepted, for example because the process
/// has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often failed connections of a listener are logged. Otherwise a crowd of clients that
/// reconnect at once would fill the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts on any number of listeners, until it is closed or dropped.
#[derive(Debug)]
pub struct Acceptor {
    connections_max: usize,
    refusal: &'static [u8],
    places: Arc<Semaphore>,
    closing: CancellationToken,
    listeners: TaskTracker,
    connections: TaskTracker,
}

impl Acceptor {
    /// Accepts at most `connections_max` connections at a time. A further one is sent
    /// `refusal` and closed: if it were left waiting, its caller would never learn why.
    pub fn new(connections_max: usize, refusal: &'static [u8]) -> Self {
        Self {
            connections_max,
            refusal,
            places: Arc::new(Semaphore::new(connections_max)),
            closing: CancellationToken::new(),
            listeners: TaskTracker::new(),
            connections: TaskTracker::new(),
        }
    }

    /// Starts to accept on a listener. `converse` serves one connection until it ends, and
    /// ends it early once the token is cancelled.
    pub fn accept<F>(
        &self,
        listener: Listener,
        converse: impl Fn(Stream, CancellationToken) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { connections_max, refusal, .. } = *self;
        let (places, closing) = (Arc::clone(&self.places), self.closing.clone());
        let connections = self.connections.clone();
        let accepting = async move {
            let mut failures = Failures::default();
            loop {
                let stream = match listener.accept().await {
                    Ok(stream) => stream,
                    Err(error) => {
                        if let Some(count) = failures.count_one() {
                            warn!(count, %error, "connections could not be accepted");
                        }
                        sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let place = if descriptors::is_reserved(&stream) {
                    Err("the file descriptors left are for backends; raise the hard limit of \
                         open files")
                } else {
                    let place = Arc::clone(&places).try_acquire_owned();
                    place.map_err(|_| "as many clients are connected as may be")
                };
                let place = match place {
                    Ok(place) => place,
                    Err(why) => {
                        stream.send_now(refusal);
                        if let Some(count) = failures.count_one() {
                            warn!(
                                count,
                                limit = connections_max,
                                "connections are refused: {why}"
                            );
                        }
                        continue;
                    }
                };
                let conversation = converse(stream, closing.clone());
                connections.spawn(async move {
                    conversation.await;
                    drop(place);
                });
            }
        };
        self.listeners.spawn(self.closing.clone().run_until_cancelled_owned(accepting));
    }

    /// Whether nobody is connected.
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty()
    }

    /// Stops listening, and ends every connection once its calls are answered. Returns
    /// whether all have ended by `deadline`.
    pub async fn close(&self, deadline: Instant) -> bool {
        self.closing.cancel();
        self.listeners.close();
        self.connections.close();
        let ended = async {
            self.listeners.wait().await;
            self.connections.wait().await;
        };
        timeout_at(deadline, ended).await.is_ok()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

/// Connections that failed and are not logged yet.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    logged: Option<Instant>,
}

impl Failures {
    /// Counts one. Returns how many there are if they are to be logged now.
    fn count_one(&mut self) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_refusals_are_one_line_with_their_number() {
        let mut failures = Failures::default();
        assert_eq!(failures.count_one(), Some(1));
        for _ in 0..1_000 {
            assert_eq!(failures.count_one(), None);
        }
        sleep(LOG_INTERVAL).await;
        assert_eq!(failures.count_one(), Some(1_001));
        assert_eq!(failures.count_one(), None);
    }
}
