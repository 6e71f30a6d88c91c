//! The task of a held lock: it notices the loss, and keeps the stream open.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tonic::Streaming;

use crate::{
    Cause,
    client::{Answer, Client},
    clock::{now, sleep_until},
    held::Held,
    open::after,
    raw::LockServerStream,
    status,
};

const ANSWER_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Keeper {
    pub(crate) held: Arc<Held>,
    pub(crate) client: Client,
    pub(crate) stream: Streaming<LockServerStream>,
    pub(crate) ttl: Duration,
    pub(crate) granted: Instant,
}

impl Keeper {
    /// Runs until the stream has ended. Aborting it closes the stream.
    pub(crate) async fn keep(mut self) {
        let _gone = Gone(self.held.clone());
        let cause = tokio::select! {
            biased;
            cause = end(&mut self.stream) => Some(cause),
            cause = confirm(&self.held, &self.client, self.ttl, self.granted) => Some(cause),
            _ = self.held.wait(|| self.held.end()) => None,
        };
        if let Some(cause) = cause {
            self.held.lose(cause);
        }
        // The stream stays open until the work has ended: until then nobody else must get
        // the lock, if the sidecar still holds it.
        end(&mut self.stream).await;
    }
}

/// When a runtime ends it drops the task, and nothing watches the lock any more.
struct Gone(Arc<Held>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.lose(Cause::Disconnected);
    }
}

/// Waits for the end of the stream.
async fn end(stream: &mut Streaming<LockServerStream>) -> Cause {
    loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return Cause::Ended,
            Err(status) => return status::cause_of_end(&status),
        }
    }
}

/// Asks the sidecar again and again, until it answers that the lock is lost.
async fn confirm(held: &Held, client: &Client, ttl: Duration, granted: Instant) -> Cause {
    let (interval, pause) = (ttl / 6, ttl / 60);
    // At once if the grant took long to arrive.
    let mut next = after(granted, interval);
    loop {
        sleep_until(next).await;
        let asked = now();
        match timeout(interval.min(ANSWER_MAX), client.check(held)).await {
            Ok(Ok(Answer::ValidFor(valid_for))) => {
                held.confirm(after(asked, valid_for));
                next = after(asked, interval);
            }
            Ok(Ok(Answer::Lost(cause))) => return cause,
            Ok(Err(_)) | Err(_) => next = after(asked, pause),
        }
    }
}
