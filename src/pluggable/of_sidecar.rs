//! A store of a sidecar, over its alpha2 API, for a process that is not its app.
//!
//! The sidecar does not renew these locks (`no_renewal`). Its own renewal would go on after this
//! process has died, and a stream would release the lock while what it protects may still run.
//!
//! Each attempt has a request ID of its own. An attempt of unknown outcome is repeated with that
//! ID, which finds its grant, and the grant is released.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_lock::{
    self as lock, Attempt, Backend, BackendError, Feature, FencingToken, Grant, GrantId,
    LockId, Mode, Release, ReleaseOf, Renewal, Renewed, Settings, Store, Violation,
};
use leasehold_proto::{
    locks::{
        self as pb, CheckLocksRequest, LockRequest, LockResponse, RenewLockRequest,
        UnlockRequest, locks_client::LocksClient,
    },
    sidecar::SidecarChannel,
};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::{
    absent_ttl,
    outage::Outage,
    status::{Verb, read},
    wire::{from_wire, ttl_to_wire},
};

/// How long a sidecar may take to answer at the start.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A store of a sidecar.
#[derive(Clone, Debug)]
pub struct SidecarStore {
    /// The sidecar's gRPC port.
    pub channel: SidecarChannel,
    /// The store's name there.
    pub name: String,
    /// Where the resources are.
    pub namespace: Vec<String>,
}

impl SidecarStore {
    /// Opens it, if the sidecar answers. The holder of its locks is the label after the
    /// sidecar's own part.
    ///
    /// # Errors
    ///
    /// The sidecar's answer.
    pub async fn open(self) -> Result<Store, Status> {
        let mut client = self.client();
        let asking = client.check_locks(CheckLocksRequest::default());
        timeout(ANSWER_WITHIN, asking).await.map_err(|_| {
            Status::unavailable(format!("the sidecar did not answer within {ANSWER_WITHIN:?}"))
        })??;
        let settings = Settings {
            ttl_default: absent_ttl(),
            ttl_max: absent_ttl(),
            ..Settings::default()
        };
        Ok(Store::new(Arc::new(self), settings))
    }

    fn client(&self) -> LocksClient<SidecarChannel> {
        LocksClient::new(self.channel.clone())
    }

    fn lock_request(&self, attempt: &Attempt, immediate: bool) -> LockRequest {
        LockRequest {
            immediate,
            resource_id: attempt.resource.as_str().to_owned(),
            ttl: ttl_to_wire(attempt.ttl.duration()),
            store_name: self.name.clone(),
            request_id: format!("leasehold-lock/{}", attempt.id),
            mode: match attempt.mode {
                Mode::Exclusive => pb::LockMode::Exclusive,
                Mode::Shared => pb::LockMode::Shared,
            }
            .into(),
            no_renewal: true,
            label: attempt
                .holder
                .as_ref()
                .map(|label| label.as_str().to_owned())
                .unwrap_or_default(),
            namespace: self.namespace.clone(),
            ..LockRequest::default()
        }
    }

    /// Sends a call, and waits for its answer until then.
    async fn call<R>(
        verb: Verb,
        until: Instant,
        calling: impl Future<Output = Result<tonic::Response<R>, Status>>,
    ) -> Result<R, BackendError> {
        match timeout_at(until, calling).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(error(verb, &status)),
            Err(_) => Err(BackendError::Unknown(format!("{verb}: no answer in time").into())),
        }
    }

    async fn try_once(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let sent = lock::Instant::now();
        let request = self.lock_request(attempt, true);
        let mut client = self.client();
        let response = Self::call(Verb::TryLock, until, client.lock(request)).await?;
        grant(sent, &response)
    }

    async fn send_unlock(
        &self,
        resource: &lock::ResourceId,
        lock_id: &LockId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let request = UnlockRequest {
            resource_id: resource.as_str().to_owned(),
            lock_id: lock_id.as_str().to_owned(),
            store_name: self.name.clone(),
            namespace: self.namespace.clone(),
        };
        let mut client = self.client();
        Self::call(Verb::Unlock, until, client.unlock(request)).await.map(|_| ())
    }

    /// Finds the grant of an attempt, and releases it.
    async fn undo(&self, attempt: &Attempt, until: Instant) -> Result<(), BackendError> {
        match self.try_once(attempt, until).await {
            Ok(grant) => self.send_unlock(&attempt.resource, &grant.lock_id, until).await,
            Err(BackendError::Locked { .. } | BackendError::TooManyHolders) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Backend for SidecarStore {
    fn features(&self) -> &[Feature] {
        // The sidecar knows what its store can do, and refuses the rest.
        &[Feature::Shared]
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        self.try_once(attempt, until).await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let outage_max = Settings::default().operation_timeout;
        let mut outage: Option<Outage> = None;
        loop {
            let (sent, started) = (lock::Instant::now(), Instant::now());
            let request = self.lock_request(attempt, false);
            let status = match self.client().lock(request).await {
                Ok(response) => {
                    let response = response.into_inner();
                    let mut grant = grant(sent, &response)?;
                    let waited = from_wire(response.waited).unwrap_or_default();
                    grant.since += waited.min(sent.elapsed());
                    return Ok(grant);
                }
                Err(status) => status,
            };
            let error = error(Verb::Lock, &status);
            let passes =
                matches!(error, BackendError::Unavailable(_) | BackendError::Unknown(_));
            let outage = outage.get_or_insert_with(Outage::new);
            if outage.note(started) >= outage_max || !passes {
                return Err(error);
            }
            // The same request ID finds its grant, should it have been made.
            outage.pause().await;
        }
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let since = lock::Instant::now();
        let request = RenewLockRequest {
            resource_id: renewal.resource.as_str().to_owned(),
            lock_id: renewal.lock_id.as_str().to_owned(),
            store_name: self.name.clone(),
            ttl: ttl_to_wire(renewal.ttl.duration()),
            namespace: self.namespace.clone(),
            ..RenewLockRequest::default()
        };
        let mut client = self.client();
        let response = Self::call(Verb::Renew, until, client.renew_lock(request)).await?;
        let ttl = from_wire(response.ttl).ok_or_else(no_ttl)?;
        Ok(Renewed { id: None, ttl, since })
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        match &release.of {
            ReleaseOf::Attempt(attempt) => self.undo(attempt, until).await,
            // No other grant ever gets this lock ID.
            ReleaseOf::Owner(lock_id) | ReleaseOf::Claim(lock_id, _) => {
                self.send_unlock(&release.resource, lock_id, until).await
            }
            ReleaseOf::Token(..) | ReleaseOf::Anyone | ReleaseOf::Id(_) => {
                Err(BackendError::Unsupported(
                    "only own locks are ended through a sidecar here".into(),
                ))
            }
        }
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        let request = CheckLocksRequest::default();
        let mut client = self.client();
        Self::call(Verb::Ping, until, client.check_locks(request)).await.map(|_| ())
    }

    async fn close(&self) {}
}

/// Reads the reasons that the sidecar adds to those of a store.
fn error(verb: Verb, status: &Status) -> BackendError {
    let reason = status.get_details_error_info().map(|info| info.reason);
    match reason.as_deref() {
        Some("LOCK_LOST") => BackendError::NotHeld { held: false },
        Some("STORE_NOT_FOUND" | "STORES_NOT_CONFIGURED") => {
            BackendError::Invalid(Violation::new("store_name", status.message().to_owned()))
        }
        _ => read(verb, status).into(),
    }
}

fn grant(sent: lock::Instant, response: &LockResponse) -> Result<Grant, BackendError> {
    let lock_id = LockId::new(&response.lock_id).map_err(|problem| {
        BackendError::Unknown(format!("granted, but the answer's {problem}").into())
    })?;
    let token = u64::try_from(response.fencing_token).ok().and_then(FencingToken::new);
    let id: Option<GrantId> = response.grant_id.parse().ok();
    let ttl = from_wire(response.ttl).ok_or_else(no_ttl)?;
    Ok(Grant { id, lock_id, token, ttl, since: sent, created: true })
}

fn no_ttl() -> BackendError {
    BackendError::Unknown("granted, but the answer has no TTL".into())
}
