//! Which service answers which path.

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use leasehold_net::request_budget::RequestBudget;
use leasehold_proto::{
    dapr::dapr_server::DaprServer,
    locks::{inspection_server::InspectionServer, locks_server::LocksServer},
};
use tokio::time::Instant;
use tonic::{Status, codec::CompressionEncoding};
use tower::{ServiceExt as _, util::MapRequestLayer};
use tracing::{Level, debug};

use super::{
    alpha1::{self, Alpha1, grpc::DaprService},
    alpha2::{self, Locks},
    auth::{self, Token},
    body,
    browsers::{self, Guard, Reach},
    error::as_daprd,
    fallback,
    metadata::Metadata,
    paths, query,
};
use crate::daprd::passthrough::Passthrough;

/// What both ports serve.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) alpha1: Alpha1,
    pub(crate) locks: Locks,
    pub(crate) metadata: Metadata,
    pub(crate) token: Token,
    /// Who can reach the ports, which decides how a page in a browser is recognised.
    pub(crate) reach: Reach,
    /// Limits what the incomplete requests of both ports may take.
    pub(crate) request_budget: RequestBudget,
}

/// The gRPC port. Without a `daprd`, the metadata that SDKs ask for at their
/// start is served here.
pub(crate) fn grpc(services: Services, daprd: Option<Passthrough>) -> Router {
    let dapr =
        DaprServer::new(DaprService { alpha1: services.alpha1, metadata: services.metadata })
            .max_decoding_message_size(body::BYTES_MAX)
            .accept_compressed(CompressionEncoding::Gzip)
            .map_request(counted(services.request_budget.clone()));
    let locks = |bytes_max| {
        LocksServer::new(services.locks.clone())
            .max_decoding_message_size(bytes_max)
            .accept_compressed(CompressionEncoding::Gzip)
    };
    let inspection = InspectionServer::new(services.locks.clone())
        .max_decoding_message_size(body::BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .map_request(counted(services.request_budget.clone()));
    let request_budget = services.request_budget.clone();
    let keep_alive = locks(body::BYTES_MAX).map_request(move |request: Request| {
        request.map(|body| tonic::body::Body::new(request_budget.count_messages(body)))
    });
    let locks =
        |bytes_max| locks(bytes_max).map_request(counted(services.request_budget.clone()));
    let mut router = Router::new()
        .route_service("/dapr.proto.runtime.v1.Dapr/TryLockAlpha1", dapr.clone())
        .route_service("/dapr.proto.runtime.v1.Dapr/UnlockAlpha1", dapr.clone())
        .route_service("/leasehold.v1.Locks/CheckLocks", locks(alpha2::CHECK_BYTES_MAX))
        .route_service("/leasehold.v1.Locks/LockKeepAlive", keep_alive)
        .route_service("/leasehold.v1.Locks/{method}", locks(body::BYTES_MAX))
        .route_service("/leasehold.v1.Inspection/{method}", inspection);
    if daprd.is_none() {
        router = router.route_service("/dapr.proto.runtime.v1.Dapr/GetMetadata", dapr);
    }
    let grpc_guard = Guard {
        reach: services.reach,
        is_lock_call: paths::is_lock_method,
        refuse: |error| Status::from(error).into_http(),
    };
    router
        .fallback(move |request: Request| fallback::grpc(daprd.clone(), request))
        .layer(from_fn_with_state(services.token, auth::check_grpc))
        .layer(from_fn_with_state(grpc_guard, browsers::check))
        .layer(from_fn(logged))
}

fn counted(
    request_budget: RequestBudget,
) -> impl Fn(Request) -> http::Request<tonic::body::Body> + Clone {
    move |request| request.map(|body| tonic::body::Body::new(request_budget.count(body)))
}

/// The HTTP port. Without a `daprd`, health and metadata are served here.
pub(crate) fn http(services: Services, daprd: Option<Passthrough>) -> Router {
    let mut router =
        alpha1::http::routes(services.alpha1).merge(alpha2::http::routes(services.locks));
    if daprd.is_none() {
        router = router.merge(own_routes(services.metadata));
    }
    let http_guard = Guard {
        reach: services.reach,
        is_lock_call: paths::is_lock_call,
        refuse: IntoResponse::into_response,
    };
    router
        .layer(MapRequestLayer::new(move |request: Request| {
            request.map(|body| Body::new(services.request_budget.count(body)))
        }))
        .method_not_allowed_fallback(fallback::wrong_method)
        .fallback(move |request: Request| fallback::http(daprd.clone(), request))
        .layer(from_fn_with_state(services.token, auth::check_http))
        .layer(from_fn_with_state(http_guard, browsers::check))
        .layer(from_fn(logged))
}

/// Logs each response, if calls are logged.
async fn logged(request: Request, next: Next) -> Response {
    if !tracing::enabled!(Level::DEBUG) {
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let began = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    debug!(%method, path, status, took = ?began.elapsed(), "answered");
    response
}

fn own_routes(metadata: Metadata) -> Router {
    let as_json = async |State(metadata): State<Metadata>| Json(metadata.as_json());
    let mut router = Router::new();
    for slash in ["", "/"] {
        router = router
            .route(&format!("/v1.0/healthz{slash}"), get(healthz))
            .route(&format!("/v1.0/healthz/outbound{slash}"), get(StatusCode::NO_CONTENT))
            .route(&format!("/v1.0/metadata{slash}"), get(as_json));
    }
    router.route("/v1.0/metadata/{key}", put(set_attribute)).with_state(metadata)
}

/// Adds an attribute to the metadata, as `dapr run` does with its process IDs.
async fn set_attribute(
    State(metadata): State<Metadata>,
    Path(key): Path<String>,
    value: Body,
) -> Response<Body> {
    let set = body::read(value).await.map_err(|error| error.to_string()).and_then(|value| {
        let value =
            String::from_utf8(value.into()).map_err(|_| "it is not UTF-8".to_owned())?;
        metadata.attributes.set(key, value)
    });
    match set {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(message) => as_daprd(StatusCode::BAD_REQUEST, "ERR_METADATA_SET", &message),
    }
}

/// With `?appid=`, whether this is that app's sidecar, as daprd answers.
async fn healthz(
    State(metadata): State<Metadata>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    let query = query.unwrap_or_default();
    let asked = query::pairs(&query).find(|pair| pair.name() == "appid");
    match asked.map(|pair| pair.value("appid")) {
        Some(app_id) if app_id.as_deref() != Ok(&*metadata.app_id) => {
            let code = "ERR_HEALTH_APPID_NOT_MATCH";
            as_daprd(StatusCode::INTERNAL_SERVER_ERROR, code, "dapr app-id does not match")
        }
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}
