//! Keeps a session's lease alive, over a stream of its own.
//!
//! The lease lasts only 3 s. So its keep-alive does not wait behind those of other leases,
//! and a silent endpoint is noticed early: after a second without an answer all endpoints
//! are tried, and the first that answers takes the connection over.

use std::{sync::Arc, time::Duration};

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};
use leasehold_util::retry::pause_before;
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::{
    connection::{Connection, delays},
    failure::Failure,
    link::Link,
};

/// How long an answer may be outstanding before other endpoints are tried.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its TTL has started again.
    Alive,
    /// It has ended, and its keys are gone.
    Dead,
    /// etcd did not answer in time.
    Unknown,
}

/// Keeps one lease alive.
pub(crate) struct KeepAlive {
    connection: Arc<Connection>,
    stream: Option<Stream>,
}

/// A stream on which no answer is outstanding.
struct Stream {
    link: Arc<Link>,
    lease: i64,
    requests: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl KeepAlive {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, stream: None }
    }

    /// Sends a keep-alive, over one connection after another until there is an answer.
    pub(crate) async fn keep(&mut self, lease: i64, until: Instant) -> Kept {
        let mut delays = delays();
        loop {
            let Ok(link) = self.connection.link(until).await else { return Kept::Unknown };
            let answer = tokio::select! {
                biased;
                answer = ask(&mut self.stream, &link, lease) => answer,
                () = link.lost() => continue,
                () = give_up(&self.connection, &link) => continue,
                () = sleep_until(until) => return Kept::Unknown,
            };
            match answer {
                Ok(kept) => return kept,
                Err(failure) => {
                    self.connection.failed(&link, &failure);
                    if !failure.is_passing() {
                        // A read renews an expired login, a stream does not.
                        let _ = self.connection.check(until).await;
                    }
                }
            }
            if !pause_before(until, delays.next_delay()).await {
                return Kept::Unknown;
            }
        }
    }
}

/// Sends one keep-alive and reads its answer.
async fn ask(
    stream: &mut Option<Stream>,
    link: &Arc<Link>,
    lease: i64,
) -> Result<Kept, Failure> {
    // Put back only after its answer: on an interrupted stream one is outstanding.
    let usable =
        stream.take().filter(|open| open.lease == lease && Arc::ptr_eq(&open.link, link));
    let (open, kept) = match usable {
        Some(mut open) => {
            open.requests.keep_alive().await?;
            let answer = open.answers.message().await?;
            let answer =
                answer.ok_or_else(|| Failure::Unknown("the keep-alive stream ended".into()))?;
            link.note(&answer);
            (open, if answer.ttl() > 0 { Kept::Alive } else { Kept::Dead })
        }
        // Opening a stream sends the first keep-alive.
        None => match link.client().lease_client().keep_alive(lease).await {
            Ok((requests, answers)) => {
                (Stream { link: Arc::clone(link), lease, requests, answers }, Kept::Alive)
            }
            Err(Error::LeaseKeepAliveError(_)) => return Ok(Kept::Dead),
            Err(error) => return Err(error.into()),
        },
    };
    if kept == Kept::Alive {
        *stream = Some(open);
    }
    Ok(kept)
}

/// Replaces a connection over which an answer has been outstanding for too long.
async fn give_up(connection: &Connection, link: &Link) {
    if connection.has_others() {
        sleep(SILENCE_MAX).await;
        connection.replace(link).await;
    } else {
        sleep(connection.silence_max()).await;
        connection.lose(link, "keep-alives are not answered");
    }
}
