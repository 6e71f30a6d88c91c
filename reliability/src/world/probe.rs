//! Lock and unlock, to see whether a process serves.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, anyhow};
use leasehold_proto::components::{
    LockRequest, RenewLockRequest, UnlockRequest, lock_store_client::LockStoreClient,
};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::INSTANCE;

/// Longer than `operationTimeout`, which limits every answer, and what a busy machine adds.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);
/// The TTL of a probe's lock, unless it is given another: the shortest that every backend grants.
const TTL_S: i64 = 2;

/// A client of [`INSTANCE`] over one socket.
#[derive(Clone, Debug)]
pub struct Probe {
    client: LockStoreClient<Channel>,
    ttl_s: i64,
}

impl Probe {
    /// Connects.
    pub async fn connect(socket: &Path) -> anyhow::Result<Self> {
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))?
            .connect()
            .await
            .with_context(|| format!("no answer at {}", socket.display()))?;
        Ok(Self { client: LockStoreClient::new(channel), ttl_s: TTL_S })
    }

    /// The same, with this TTL.
    #[must_use]
    pub fn with_ttl_s(&self, ttl_s: i64) -> Self {
        Self { ttl_s, ..self.clone() }
    }

    /// Tries a lock, and returns its ID.
    pub async fn try_lock(&self, resource: &str) -> Result<(String, i64), Status> {
        let request = request(self.lock_request(resource), CALL_TIMEOUT);
        let answer = self.client.clone().try_lock(request).await?.into_inner();
        Ok((answer.lock_id, answer.fencing_token))
    }

    /// Waits for a lock, and returns its ID.
    pub async fn lock(
        &self,
        resource: &str,
        within: Duration,
    ) -> Result<(String, i64), Status> {
        let request = request(self.lock_request(resource), within);
        let answer = self.client.clone().lock(request).await?.into_inner();
        Ok((answer.lock_id, answer.fencing_token))
    }

    /// Starts the TTL again.
    pub async fn renew(&self, resource: &str, lock_id: &str) -> Result<(), Status> {
        let message = RenewLockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ttl: Some(prost_types::Duration { seconds: self.ttl_s, nanos: 0 }),
            ..RenewLockRequest::default()
        };
        self.client.clone().renew_lock(request(message, CALL_TIMEOUT)).await.map(drop)
    }

    /// Unlocks.
    pub async fn unlock(&self, resource: &str, lock_id: &str) -> Result<(), Status> {
        let message = UnlockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ..UnlockRequest::default()
        };
        self.client.clone().unlock(request(message, CALL_TIMEOUT)).await.map(drop)
    }

    /// Locks and unlocks a resource of its own; returns the token.
    pub async fn cycle(&self) -> anyhow::Result<i64> {
        let resource = format!("probe-{}", Uuid::new_v4().simple());
        let (lock_id, token) = self.try_lock(&resource).await.map_err(|why| error(&why))?;
        match self.unlock(&resource, &lock_id).await {
            Ok(()) => Ok(token),
            Err(why) => Err(error(&why).context("unlock")),
        }
    }

    fn lock_request(&self, resource: &str) -> LockRequest {
        LockRequest {
            resource_id: resource.to_owned(),
            ttl: Some(prost_types::Duration { seconds: self.ttl_s, nanos: 0 }),
            ..LockRequest::default()
        }
    }
}

/// The reason in the `ErrorInfo` of a status.
pub fn reason(status: &Status) -> String {
    match status.get_details_error_info() {
        Some(info) => info.reason,
        None if status.code() == Code::DeadlineExceeded => "no answer in time".to_owned(),
        None => format!("{:?}", status.code()),
    }
}

fn error(status: &Status) -> anyhow::Error {
    anyhow!("{}: {}", reason(status), status.message())
}

fn request<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("x-component-instance", tonic::metadata::MetadataValue::from_static(INSTANCE));
    request.set_timeout(within);
    request
}
