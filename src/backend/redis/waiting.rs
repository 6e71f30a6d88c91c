//! One wait, from its place in the queue to its grant.

use std::{sync::Arc, time::Duration};

use ::redis::Cmd;
use tokio::time::Instant;

use super::{
    backend::{Core, FIRST_LOOK, acquire_arguments},
    entry,
    link::Sessions,
    reply::Reply,
    scripts::SCRIPTS,
    waiters::Seat,
};
use crate::lock::{Attempt, BackendError, Grant};

/// How much longer than the operation timeout a wait outlives an outage.
const OUTAGE_GRACE: Duration = Duration::from_secs(1);

/// What came of asking for a place.
enum Entered {
    /// It was free.
    Granted(Grant),
    /// A place in the queue, known to this connection.
    Queued { session: u64 },
}

impl Core {
    /// Waits for a grant.
    pub(super) async fn wait(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let seat = self.waiters.sit(attempt);
        let mut sessions = self.link.sessions();
        let mut entered = false;
        loop {
            let session = match self.enter(attempt, &seat, entered).await {
                Ok(Entered::Granted(grant)) => return Ok(grant),
                Ok(Entered::Queued { session }) => session,
                Err(error) => return Err(self.end_wait(attempt, entered, error)),
            };
            entered = true;
            tokio::select! {
                () = seat.called() => match self.confirm(attempt).await {
                    Ok(Some(grant)) => return Ok(grant),
                    Ok(None) => {}
                    Err(error) => return Err(self.end_wait(attempt, entered, error)),
                },
                // Whatever was said since was said to nobody: ask again.
                () = another_than(session, &mut sessions) => {}
            }
        }
    }

    /// Takes what is free, or a place in the queue.
    async fn enter(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        entered: bool,
    ) -> Result<Entered, BackendError> {
        let keys = [attempt.resource.as_str(), &entry::counter_key(&attempt.resource)];
        let rest = entry::rest(attempt);
        let signed = Instant::now();
        let signs = entered || !self.sign.is_fresh();
        let arguments = |request: &mut Cmd, again: bool| {
            let again = again || entered;
            acquire_arguments(request, attempt, &rest);
            request
                .arg(self.waiters.process())
                .arg(u8::from(again))
                .arg(self.settings.waiters_per_resource_max)
                .arg(u8::from(again || signs));
        };
        let until = signed + self.settings.operation_timeout + OUTAGE_GRACE;
        let answer = self.link.run(&SCRIPTS.lock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Queued { left_ms } => {
                if signs {
                    self.sign.given(signed);
                }
                let left = u64::try_from(left_ms).map_or(FIRST_LOOK, Duration::from_millis);
                let soon = if seat.first || entered { left.min(FIRST_LOOK) } else { left };
                self.waiters.plan(&attempt.resource, soon);
                Ok(Entered::Queued { session: answer.session })
            }
            Reply::Full => Err(BackendError::TooManyWaiters("the resource's limit is reached")),
            other => self.conclude(attempt, other, answer.since).map(Entered::Granted),
        }
    }

    /// Takes what was handed over; `None` if it is gone again.
    async fn confirm(&self, attempt: &Attempt) -> Result<Option<Grant>, BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request
                .arg(attempt.ttl.as_ms())
                .arg(attempt.id.to_string())
                .arg(entry::request_id(attempt));
        };
        let until = Instant::now() + self.settings.operation_timeout + OUTAGE_GRACE;
        let keys = [attempt.resource.as_str()];
        let answer = self.link.run(&SCRIPTS.confirm, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Gone => Ok(None),
            other => {
                let grant = self.conclude(attempt, other, answer.since)?;
                if self.waiters.waiting(&attempt.resource) > 1 {
                    self.waiters.plan(&attempt.resource, grant.ttl);
                }
                Ok(Some(grant))
            }
        }
    }

    /// An outage ends a wait that holds nothing but a place: that is left when
    /// Redis is back, so to the caller it did not happen.
    fn end_wait(&self, attempt: &Attempt, entered: bool, error: BackendError) -> BackendError {
        if entered && matches!(error, BackendError::Unavailable(_)) {
            let mut left = self.left();
            if left.len() >= self.settings.waiters_max {
                left.pop_front();
            }
            left.push_back(Arc::new(attempt.clone()));
        }
        error
    }
}

/// Returns when this connection is no longer in service.
async fn another_than(session: u64, sessions: &mut Sessions) {
    let left = sessions.wait_for(|now| now.as_ref().is_none_or(|now| now.number != session));
    let _ = left.await.map(drop);
}
