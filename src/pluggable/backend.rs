//! The backend: each operation as calls of the component protocol.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_lock::{
    self as lock, Attempt, Backend, BackendError, Feature, FencingToken, Grant, GrantId,
    LockId, Release, ReleaseOf, Renewal, Renewed, ResourceId, Ttl, inspect::Inspect,
};
use leasehold_proto::components::{LockResponse, PingRequest};
use tokio::time::Instant;
use tracing::warn;

use super::{
    absent_ttl,
    attempts::Attempts,
    connection::Connection,
    outage::{self, Outage},
    rpc,
    status::Verb,
    wire::{from_wire, lock_request, renew_request, unlock_request},
};

/// A third-party lock store.
pub(super) struct Pluggable {
    pub(super) connection: Arc<Connection>,
    attempts: Attempts,
    /// How long an outage may last without ending a wait.
    operation_timeout: Duration,
}

impl Pluggable {
    pub(super) fn new(connection: Connection, operation_timeout: Duration) -> Self {
        Self {
            connection: Arc::new(connection),
            attempts: Attempts::default(),
            operation_timeout,
        }
    }

    async fn lock_once(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let (sent, response) =
            self.connection.call(Verb::Lock, lock_request(attempt), None, rpc::lock).await?;
        let waited = from_wire(response.waited);
        let mut grant = grant(attempt, sent, &response)?;
        if attempt.lock_id_given {
            self.attempts.note_granted(attempt);
        }
        match waited {
            Some(waited) => grant.since += waited.min(sent.elapsed()),
            // The store does not say for how long the call waited, so the start of the TTL is
            // unknown. A renewal starts it again.
            None if sent.elapsed() > grant.ttl / 10 => {
                let renewal = Renewal {
                    resource: attempt.resource.clone(),
                    lock_id: grant.lock_id.clone(),
                    ttl: attempt.ttl,
                };
                let until = Instant::now() + self.operation_timeout;
                let renewed = self.renew(&renewal, until).await.map_err(|error| {
                    BackendError::Unknown(format!("granted, but not renewed: {error}").into())
                })?;
                (grant.ttl, grant.since) = (renewed.ttl, renewed.since);
            }
            None => {}
        }
        Ok(grant)
    }

    async fn send_unlock(
        &self,
        resource: &ResourceId,
        lock_id: Option<&LockId>,
        until: Instant,
    ) -> Result<(), BackendError> {
        let message = unlock_request(resource, lock_id);
        let sending = self.connection.call(Verb::Unlock, message, Some(until), rpc::unlock);
        sending.await.map(|_| ())
    }

    async fn undo(&self, attempt: &Attempt, until: Instant) -> Result<(), BackendError> {
        if !self.attempts.ended(attempt.id, until).await {
            return Err(BackendError::Unknown("the try to undo is still under way".into()));
        }
        if attempt.request_id.is_some() {
            return Ok(());
        }
        let granted = self.attempts.granted(&attempt.resource, &attempt.lock_id);
        if attempt.lock_id_given && granted != Some(attempt.id) {
            warn!(
                resource = attempt.resource.as_str(),
                "an attempt with a lock ID that the caller chose may have \
                been granted; if it was, the grant lasts until its TTL ends"
            );
            return Ok(());
        }
        self.send_unlock(&attempt.resource, Some(&attempt.lock_id), until).await
    }

    /// Undoes a wait that was broken off, so that it can begin again. Returns whether that
    /// succeeded. A wait with a `request_id` needs no undo, because it finds its own grant.
    async fn start_afresh(&self, attempt: &Attempt) -> bool {
        if attempt.request_id.is_some() {
            return true;
        }
        // Short enough not to count as the end of an outage.
        let until = Instant::now() + outage::CALL_MAX / 2;
        let undone = self.send_unlock(&attempt.resource, Some(&attempt.lock_id), until).await;
        matches!(undone, Ok(()) | Err(BackendError::NotHeld { .. }))
    }
}

#[async_trait]
impl Backend for Pluggable {
    fn features(&self) -> &[Feature] {
        self.connection.features()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let (connection, tries) = (Arc::clone(&self.connection), self.attempts.clone());
        let attempt = attempt.clone();
        let running = tries.begin(attempt.id);
        // In a task of its own, so that the try continues if the caller goes away, and its
        // clean-up can wait for its end.
        let trying = tokio::spawn(async move {
            let _running = running;
            let message = lock_request(&attempt);
            let calling = connection.call(Verb::TryLock, message, Some(until), rpc::try_lock);
            let (sent, response) = calling.await?;
            let grant = grant(&attempt, sent, &response)?;
            if attempt.lock_id_given {
                tries.note_granted(&attempt);
            }
            Ok(grant)
        });
        trying
            .await
            .unwrap_or_else(|error| Err(BackendError::Unknown(error.to_string().into())))
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let mut outage: Option<Outage> = None;
        let mut left_behind = false;
        loop {
            let started = Instant::now();
            if left_behind {
                left_behind = !self.start_afresh(attempt).await;
            }
            let error = if left_behind {
                BackendError::Unknown(
                    "the wait was broken off, and could not be undone yet".into(),
                )
            } else {
                match self.lock_once(attempt).await {
                    Err(error @ (BackendError::Unavailable(_) | BackendError::Unknown(_))) => {
                        error
                    }
                    settled => return settled,
                }
            };
            let outage = outage.get_or_insert_with(Outage::new);
            left_behind |= matches!(error, BackendError::Unknown(_));
            let is_over = outage.note(started) >= self.operation_timeout;
            if is_over || left_behind && attempt.lock_id_given && attempt.request_id.is_none() {
                return Err(error);
            }
            outage.pause().await;
        }
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let message = renew_request(renewal);
        let calling = self.connection.call(Verb::Renew, message, Some(until), rpc::renew_lock);
        let (since, response) = calling.await?;
        let ttl = ttl_or(from_wire(response.ttl), renewal.ttl)?;
        // At most this attempt with this lock ID is undone: see `undo`.
        let granted = self.attempts.granted(&renewal.resource, &renewal.lock_id);
        Ok(Renewed { id: granted.map(GrantId::from), ttl, since })
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        let lock_id = match &release.of {
            ReleaseOf::Attempt(attempt) => return self.undo(attempt, until).await,
            // The protocol has no way to name an attempt.
            ReleaseOf::Owner(lock_id) | ReleaseOf::Claim(lock_id, _) => Some(lock_id),
            ReleaseOf::Token(..) => {
                let why =
                    "a store in another process cannot compare the token before it unlocks";
                return Err(BackendError::Unsupported(why.into()));
            }
            ReleaseOf::Anyone => None,
            // It may be sent again: no later grant has this ID.
            ReleaseOf::Id(id) => return self.end(&release.resource, *id, until).await,
        };
        // The protocol has no way to name a grant either: another try could end a later one.
        if release.target.fixed().is_some() {
            warn!(
                resource = release.resource.as_str(),
                "an unlock of unknown outcome is not sent again; \
                if it did not happen, the grant lasts until its TTL ends"
            );
            return Err(BackendError::NotHeld { held: false });
        }
        release.target.fix("sent");
        self.send_unlock(&release.resource, lock_id, until).await
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        let pinging = self.connection.call(Verb::Ping, PingRequest {}, Some(until), rpc::ping);
        pinging.await.map(|_| ())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.features().contains(&Feature::Inspection).then_some(self)
    }

    async fn close(&self) {}
}

pub(crate) fn grant(
    attempt: &Attempt,
    sent: lock::Instant,
    response: &LockResponse,
) -> Result<Grant, BackendError> {
    let lock_id = if response.lock_id.is_empty() {
        attempt.lock_id.clone()
    } else {
        LockId::new(&response.lock_id).map_err(|problem| {
            BackendError::Unknown(format!("granted, but the answer's {problem}").into())
        })?
    };
    let token = u64::try_from(response.fencing_token).ok().and_then(FencingToken::new);
    Ok(Grant {
        id: response.grant_id.parse().ok(),
        token,
        ttl: ttl_or(from_wire(response.ttl), attempt.ttl)?,
        since: sent,
        // With a request ID it may be the grant of an earlier attempt.
        created: attempt.request_id.is_none() && lock_id == attempt.lock_id,
        lock_id,
    })
}

/// The TTL granted: what the store says, or else what it was asked for.
fn ttl_or(granted: Option<Duration>, asked: Ttl) -> Result<Duration, BackendError> {
    let asked = Some(asked.duration()).filter(|asked| *asked != absent_ttl());
    let unknown = || BackendError::Unknown("granted, but the answer has no TTL".into());
    granted.or(asked).ok_or_else(unknown)
}
