//! Notifies the app of lost locks that have no stream, on the app's own
//! channel: HTTP `POST /leasehold/lock-lost` or gRPC
//! `leasehold.v1.LockEvents/OnLockLost`.
//!
//! A bounded queue lies between the engine and the app, so that an app that
//! hangs blocks nothing.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header, uri::PathAndQuery};
use leasehold_held::LostLock;
use leasehold_lock::observe::Notice;
use leasehold_net::{inspection::Named, wire::token};
use leasehold_proto::{
    locks::{self as proto, lock_events_client::LockEventsClient},
    sidecar::TOKEN_HEADER,
};
use leasehold_util::{error_chain::chain, retry::Backoff};
use serde_json::json;
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tonic::{Code, metadata::MetadataValue};
use tracing::{debug, warn};

use super::client::{AppChannel, AppClient};
use crate::{api::auth::Token, name::ResourceName, usage::UsageError};

/// How many notices may wait for the app; more are dropped and logged.
pub const NOTICES_MAX: usize = 10_000;
/// How many are on their way to the app at once.
const IN_FLIGHT_MAX: usize = 64;
/// How long the app may take for one try.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
const TRIES_MAX: usize = 3;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
const PATH: &str = "/leasehold/lock-lost";

/// Why a notice did not reach the app.
#[derive(Debug, thiserror::Error)]
enum NoticeError {
    /// The app does not implement the call: no retry.
    #[error("the app does not take it ({0})")]
    NotTaken(String),
    /// A retry may succeed.
    #[error("{0}")]
    Failed(String),
}

enum Caller {
    Http(AppClient<Body>, Uri, Token),
    Grpc(LockEventsClient<AppClient<tonic::body::Body>>, Token),
}

/// Sends the app every notice of `queue` until the queue is closed. Without a
/// channel, notices are discarded.
pub async fn run(mut queue: mpsc::Receiver<LostLock>, app: Option<AppChannel>) {
    let caller = app.and_then(|app| match Caller::new(app) {
        Ok(caller) => Some(Arc::new(caller)),
        Err(error) => {
            warn!(%error, "the app cannot be notified of lost locks");
            None
        }
    });
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    while let Some(lost) = queue.recv().await {
        let Some(caller) = caller.clone() else { continue };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        tokio::spawn(async move {
            caller.notify(&lost).await;
            drop(place);
        });
    }
}

impl Caller {
    fn new(app: AppChannel) -> Result<Self, UsageError> {
        if app.protocol.is_grpc() {
            let origin = app.url(PathAndQuery::from_static("/"))?;
            let client = LockEventsClient::with_origin(app.client()?, origin);
            return Ok(Self::Grpc(client, app.token));
        }
        let url = app.url(PathAndQuery::from_static(PATH))?;
        Ok(Self::Http(app.client()?, url, app.token))
    }

    async fn notify(&self, lost: &LostLock) {
        let name = ResourceName::decode(&lost.app_resource);
        // It can be decoded, because an app's name was encoded.
        let name = name.as_ref().map(ResourceName::to_named).unwrap_or_default();
        let mut backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        let mut tries = 1;
        let sent = loop {
            let sent = timeout(TRY_TIMEOUT, self.try_to_notify(lost, &name)).await;
            let silent = |_| Err(NoticeError::Failed(format!("no answer in {TRY_TIMEOUT:?}")));
            let sent = sent.unwrap_or_else(silent);
            if tries == TRIES_MAX || !matches!(sent, Err(NoticeError::Failed(_))) {
                break sent;
            }
            tries += 1;
            backoff.pause().await;
        };
        let notice = if sent.is_ok() { Notice::Delivered } else { Notice::Failed };
        lost.lock_store.store().observer().notified(notice);
        match sent {
            Ok(()) => {}
            Err(error @ NoticeError::NotTaken(_)) => {
                debug!(resource = lost.resource.as_str(), %error, "the app was not notified of a lost lock");
            }
            Err(error) => {
                warn!(resource = lost.resource.as_str(), %error, "the app was not notified of a lost lock");
            }
        }
    }

    async fn try_to_notify(&self, lost: &LostLock, name: &Named) -> Result<(), NoticeError> {
        match self {
            Self::Http(client, url, token) => post(client, url, token, lost, name).await,
            Self::Grpc(client, token) => call(client.clone(), token, lost, name).await,
        }
    }
}

async fn post(
    client: &AppClient<Body>,
    url: &Uri,
    secret: &Token,
    lost: &LostLock,
    name: &Named,
) -> Result<(), NoticeError> {
    let body = json!({
        "storeName": **lost.lock_store.name(),
        "resourceID": name.resource_id,
        "namespace": name.namespace,
        "lockID": lost.lock_id.as_str(),
        "fencingToken": token(lost.token),
        "cause": lost.cause.as_str(),
    });
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(url.clone())
        .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(secret) = secret.secret() {
        request = request.header(TOKEN_HEADER, secret);
    }
    let request = request
        .body(Body::from(body.to_string()))
        .map_err(|error| NoticeError::NotTaken(error.to_string()))?;
    let response =
        client.request(request).await.map_err(|error| NoticeError::Failed(chain(&error)))?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status @ (StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::NOT_IMPLEMENTED) => Err(NoticeError::NotTaken(status.to_string())),
        status => Err(NoticeError::Failed(status.to_string())),
    }
}

async fn call(
    mut client: LockEventsClient<AppClient<tonic::body::Body>>,
    secret: &Token,
    lost: &LostLock,
    name: &Named,
) -> Result<(), NoticeError> {
    let mut request = tonic::Request::new(proto::LockLost {
        store_name: lost.lock_store.name().to_string(),
        resource_id: name.resource_id.clone(),
        namespace: name.namespace.clone(),
        lock_id: lost.lock_id.as_str().to_owned(),
        fencing_token: token(lost.token),
        cause: lost.cause.as_str().to_owned(),
    });
    if let Some(secret) = secret.secret() {
        let secret = MetadataValue::try_from(secret)
            .map_err(|error| NoticeError::NotTaken(error.to_string()))?;
        request.metadata_mut().insert(TOKEN_HEADER, secret);
    }
    match client.on_lock_lost(request).await {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::Unimplemented => {
            Err(NoticeError::NotTaken(status.to_string()))
        }
        Err(status) => Err(NoticeError::Failed(status.to_string())),
    }
}
