//! Attempts in flight. Each runs in a task of its own and goes on when its caller leaves, until
//! the outcome of everything that it sent is known. So a release of an attempt takes effect
//! after everything that the attempt has sent (trap 7).

use std::{collections::HashMap, sync::Arc};

use leasehold_lock::{AttemptId, BackendError, Grant};
use parking_lot::Mutex;
use tokio::{
    sync::{SetOnce, oneshot},
    time::{Duration, Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    background::Background,
    client::connection::delays,
    grants::write::NotWritten,
    lease::taken::Taken,
    queue::session::{Session, Sessions},
};

/// The state of an attempt in flight.
#[derive(Debug, Default)]
struct Flight {
    /// Cancelled when the grant is no longer wanted.
    unwanted: CancellationToken,
    /// Set when the attempt has ended, and everything that it sent has taken effect or never
    /// will: whether it may have left something behind.
    ended: SetOnce<bool>,
}

/// A write of an attempt that may still take effect.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A write under this lease.
    Lease(Taken),
    /// A write of this waiter's key, under this session.
    Entry(Arc<Session>, String),
    /// This waiter's key, which is known to have been put.
    PutEntry(String),
    /// The grant that it made, which is left to the release of the attempt.
    Grant,
}

/// How an attempt ended without a grant.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The caller's error.
    pub(crate) error: BackendError,
    /// What must be cleaned up before the attempt has ended.
    pub(crate) leftovers: Vec<Leftover>,
}

impl From<BackendError> for Failed {
    fn from(error: BackendError) -> Self {
        Self { error, leftovers: Vec::new() }
    }
}

impl From<NotWritten> for Failed {
    fn from(not: NotWritten) -> Self {
        match not {
            NotWritten::Not(why) => BackendError::Unavailable(why).into(),
            NotWritten::Unknown(why, lease) => Self {
                error: BackendError::Unknown(why),
                leftovers: vec![Leftover::Lease(lease)],
            },
        }
    }
}

/// The attempts in flight.
pub(crate) struct Attempts {
    flights: Mutex<HashMap<AttemptId, Arc<Flight>>>,
    sessions: Arc<Sessions>,
    background: Background,
    /// How long one try to clean up may take.
    step: Duration,
}

impl Attempts {
    pub(crate) fn new(sessions: Arc<Sessions>, background: Background, step: Duration) -> Self {
        Self { flights: Mutex::default(), sessions, background, step }
    }

    /// Carries out an attempt in a task of its own, so that it ends properly even if its
    /// caller leaves. The work is given the token that is cancelled then.
    pub(crate) async fn run<F>(
        self: &Arc<Self>,
        id: AttemptId,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<Grant, BackendError>
    where
        F: Future<Output = Result<Grant, Failed>> + Send + 'static,
    {
        let flight = Arc::new(Flight::default());
        self.flights.lock().insert(id, Arc::clone(&flight));
        let work = work(flight.unwanted.clone());
        let unwanted = flight.unwanted.clone().drop_guard();
        let (answer, answered) = oneshot::channel();
        let attempts = Arc::clone(self);
        tokio::spawn(async move {
            let mut end = EndOnDrop { attempts: &attempts, id, may_be_left: true };
            match work.await {
                Ok(grant) => {
                    // Before the answer: an undo after it must find the attempt ended.
                    drop(end);
                    let _ = answer.send(Ok(grant));
                }
                Err(Failed { error, leftovers }) if leftovers.is_empty() => {
                    end.may_be_left = false;
                    drop(end);
                    let _ = answer.send(Err(error));
                }
                Err(Failed { error, leftovers }) => {
                    let _ = answer.send(Err(error));
                    end.may_be_left = !attempts.clean_up(leftovers).await;
                }
            }
        });
        let result = answered.await;
        let _ = unwanted.disarm();
        result.unwrap_or_else(|_| Err(BackendError::Unknown("the attempt was aborted".into())))
    }

    /// Makes an attempt end that is in flight, and waits for that. Returns whether it may have
    /// left something behind.
    pub(crate) async fn end(
        &self,
        id: AttemptId,
        until: Instant,
    ) -> Result<bool, BackendError> {
        let flight = self.flights.lock().get(&id).cloned();
        let Some(flight) = flight else { return Ok(true) };
        flight.unwanted.cancel();
        tokio::select! {
            biased;
            may_be_left = flight.ended.wait() => Ok(*may_be_left),
            () = sleep_until(until) => {
                Err(BackendError::Unknown("the attempt has not ended yet".into()))
            }
        }
    }

    /// Makes sure that no write of an attempt takes effect any more, for as long as that takes;
    /// `false` if a grant is left, or if the backend closed before.
    async fn clean_up(&self, leftovers: Vec<Leftover>) -> bool {
        let mut retry_delays = delays();
        let mut is_all = true;
        for mut leftover in leftovers {
            is_all &= !matches!(leftover, Leftover::Grant);
            while !self.is_cleaned_up(&mut leftover).await {
                tokio::select! {
                    () = retry_delays.pause() => {}
                    () = self.background.closed() => return false,
                }
            }
        }
        is_all
    }

    async fn is_cleaned_up(&self, leftover: &mut Leftover) -> bool {
        let until = Instant::now() + self.step;
        match leftover {
            Leftover::Lease(lease) => lease.undo(until).await.is_ok(),
            Leftover::Entry(session, key) => {
                self.sessions.remove_entry(session, key, until).await.is_ok()
            }
            Leftover::PutEntry(key) => self.sessions.delete_entry(key, until).await.is_ok(),
            Leftover::Grant => true,
        }
    }
}

/// Ends an attempt also when its task panics.
struct EndOnDrop<'a> {
    attempts: &'a Attempts,
    id: AttemptId,
    may_be_left: bool,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let flight = self.attempts.flights.lock().remove(&self.id);
        if let Some(flight) = flight {
            let _ = flight.ended.set(self.may_be_left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Config,
        etcd::Etcd,
        lease::{keep_alives::KeepAlives, leases::Leases},
    };

    fn attempts() -> Arc<Attempts> {
        let etcd = Etcd::new(Config::offline(), leasehold_lock::observe::Unobserved::store());
        let (connection, background) = (&etcd.connection, etcd.background.clone());
        let keep_alives = KeepAlives::start(connection, &background);
        let leases = Leases::start(Arc::clone(connection), keep_alives, &background);
        let sessions = Sessions::start(Arc::clone(&etcd), leases);
        Arc::new(Attempts::new(sessions, background, Duration::from_secs(1)))
    }

    /// A grant was made, but could not be moved to a lease of a new leader's.
    /// Trap: etcd 7
    #[tokio::test(start_paused = true)]
    async fn a_grant_that_an_attempt_has_made_is_left_to_its_release() {
        for (leftovers, may_be_left) in [(vec![], false), (vec![Leftover::Grant], true)] {
            let (attempts, id) = (attempts(), AttemptId::random());
            let (finish, finished) = oneshot::channel::<()>();
            let run = attempts.run(id, |_| async move {
                let _ = finished.await;
                Err(Failed { error: BackendError::Unknown("why".into()), leftovers })
            });
            let until = Instant::now() + Duration::from_secs(1);
            let finish = async { finish.send(()).unwrap() };
            let (failed, ended, ()) = tokio::join!(run, attempts.end(id, until), finish);
            failed.unwrap_err();
            assert_eq!(ended, Ok(may_be_left));
        }
    }
}
