//! A short client of the component protocol.

use std::{collections::HashMap, path::Path, time::Duration};

use leasehold_proto::components::{
    LockRequest, LockResponse, LockStoreInitRequest, MetadataRequest, RenewLockRequest,
    RenewLockResponse, UnlockRequest, lock_store_client::LockStoreClient,
};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// Fails a test instead of letting it hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A wait that is under way.
pub type Waiting = tokio::task::JoinHandle<Result<LockResponse, Status>>;

/// One connection for one instance.
#[derive(Clone)]
pub struct Client {
    inner: LockStoreClient<Channel>,
    instance: &'static str,
}

impl Client {
    /// Connects; calls are for the instance `locks`.
    pub async fn connect(socket: &Path) -> Self {
        Self { inner: LockStoreClient::new(channel(socket).await), instance: "locks" }
    }

    /// Connects and initialises the instance with no metadata.
    pub async fn initialised(socket: &Path) -> Self {
        let client = Self::connect(socket).await;
        client.init(&[]).await.unwrap();
        client
    }

    /// The same connection, for another instance.
    pub fn instance(&self, instance: &'static str) -> Self {
        Self { inner: self.inner.clone(), instance }
    }

    pub async fn init(&self, items: &[(&str, &str)]) -> Result<(), Status> {
        let properties: HashMap<_, _> =
            items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let metadata = Some(MetadataRequest { properties });
        self.inner.clone().init(self.request(LockStoreInitRequest { metadata })).await.map(drop)
    }

    pub async fn try_lock(&self, resource: &str) -> Result<LockResponse, Status> {
        self.try_lock_with(request(resource)).await
    }

    pub async fn try_lock_with(&self, request: LockRequest) -> Result<LockResponse, Status> {
        let answer = self.inner.clone().try_lock(self.request(request)).await?;
        Ok(answer.into_inner())
    }

    /// Waits; `within` becomes the call's `grpc-timeout`.
    pub async fn lock(
        &self,
        resource: &str,
        within: Option<Duration>,
    ) -> Result<LockResponse, Status> {
        let mut request = self.request(request(resource));
        if let Some(within) = within {
            request.set_timeout(within);
        }
        Ok(self.inner.clone().lock(request).await?.into_inner())
    }

    pub async fn renew(
        &self,
        resource: &str,
        lock_id: &str,
    ) -> Result<RenewLockResponse, Status> {
        let request = RenewLockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ..Default::default()
        };
        Ok(self.inner.clone().renew_lock(self.request(request)).await?.into_inner())
    }

    pub async fn unlock(&self, resource: &str, lock_id: &str) -> Result<(), Status> {
        let request = UnlockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ..Default::default()
        };
        self.inner.clone().unlock(self.request(request)).await.map(drop)
    }

    /// Ends any grant of the resource.
    pub async fn force(&self, resource: &str) -> Result<(), Status> {
        let request = UnlockRequest {
            resource_id: resource.to_owned(),
            force: true,
            ..Default::default()
        };
        self.inner.clone().unlock(self.request(request)).await.map(drop)
    }

    /// A wait without end, under way.
    pub fn waiting(&self, resource: &'static str) -> Waiting {
        let client = self.clone();
        tokio::spawn(async move { client.lock(resource, None).await })
    }

    /// Returns when `waiting` is certainly queued. The protocol does not show
    /// the queue, so a short wait is sent after it on the same socket: its end
    /// shows that the server has read the other.
    pub async fn queued(&self, resource: &str, waiting: &Waiting) {
        self.answered_in_time(resource, Duration::from_millis(500)).await;
        assert!(!waiting.is_finished());
    }

    /// Waits in vain `within` this time, and is answered before. On a busy machine the client's
    /// own timer may end the call first, so it is made again with twice the time, which has a
    /// longer margin.
    pub async fn answered_in_time(&self, resource: &str, mut within: Duration) {
        loop {
            let started = tokio::time::Instant::now();
            let ended = self.lock(resource, Some(within)).await.unwrap_err();
            if ended.get_details_error_info().is_some() {
                assert_eq!(reason(&ended), "WAIT_DEADLINE");
                if started.elapsed() < within {
                    return;
                }
            }
            within *= 2;
            assert!(within < PATIENCE, "{ended:?}");
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("x-component-instance", self.instance.parse().unwrap());
        request
    }
}

/// Connects to a socket.
pub async fn channel(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    endpoint.timeout(PATIENCE).connect().await.unwrap()
}

/// A request for a resource, with a TTL of a minute.
pub fn request(resource: &str) -> LockRequest {
    LockRequest {
        resource_id: resource.to_owned(),
        ttl: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..Default::default()
    }
}

/// The `ErrorInfo` reason of a status.
pub fn reason(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.unwrap_or_else(|| panic!("no ErrorInfo: {status:?}")).reason
}

/// The fields that a status names.
pub fn fields(status: &Status) -> Vec<String> {
    let blamed = status.get_details_bad_request().unwrap().field_violations;
    blamed.into_iter().map(|violation| violation.field).collect()
}

/// Polls until `ask` succeeds, and fails if that takes longer than `within`.
pub async fn eventually<T>(
    within: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> T {
    let give_up = tokio::time::Instant::now() + within;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(tokio::time::Instant::now() < give_up, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
