//! alpha2 over HTTP.

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, Version},
    response::{IntoResponse, Response},
    routing::{any, post},
};
use leasehold_held::MaxHold;
use leasehold_lock::{LockError, Violation};
use leasehold_net::peer::Peer;
use leasehold_proto::locks as pb;
use leasehold_util::duration::go_duration;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use super::{
    Locks, check, inspection,
    json::{self, Fields},
    ndjson, stream, wire,
};
use crate::api::{
    body::{self, BodyError},
    error::ApiError,
    query,
};

type Target = Result<Path<(String, String)>, PathRejection>;

/// The routes of alpha2. The resource is the rest of the path, percent-decoded, including
/// its slashes; the query has the segments of its namespace.
pub fn routes(locks: Locks) -> Router {
    Router::new()
        .route("/v1.0-alpha2/lock/{store}/{*resource}", post(lock).put(renew).delete(unlock))
        .route("/v1.0-alpha2/locks:check", post(check_locks))
        .route("/v1.0-alpha2/lock/{store}/", any(no_resource))
        .route("/v1.0-alpha2/lock/{store}", any(no_resource))
        .with_state(locks.clone())
        .merge(inspection::http::routes(locks))
}

async fn lock(
    State(locks): State<Locks>,
    target: Target,
    RawQuery(query): RawQuery,
    version: Version,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let arrived = Instant::now();
    let (store_name, resource_id, namespace) = named(target, query.as_deref())?;
    let mut fields = read(body).await?;
    let request = pb::LockRequest {
        store_name,
        resource_id,
        namespace,
        immediate: fields.flag("immediate")?,
        ttl: fields.duration("ttl")?,
        wait: fields.duration("wait")?,
        request_id: fields.text("requestID")?,
        mode: fields.mode()?.into(),
        max_hold: fields.duration("maxHold")?,
        no_renewal: fields.flag("noRenewal")?,
        metadata: fields.texts_by_name("metadata")?,
        label: fields.text("label")?,
    };
    fields.end()?;
    let call = wire::lock_call(request, arrived, None)?;
    if ndjson::is_wanted(&headers) {
        let max_hold = if version < Version::HTTP_2 {
            warn!(
                "a lock's stream over HTTP/1 takes a connection of its own; prefer HTTP/2 or gRPC"
            );
            // A write to an app that stands still succeeds: the kernel acknowledges it.
            locks.limited(&call)
        } else {
            MaxHold::asked_for(call.max_hold)
        };
        return Ok(ndjson::of_lock(stream::open(&locks, call, max_hold).await?));
    }
    let grant = locks.lock(call).await?;
    let mut response = Json(json::of_grant(&grant.granted)).into_response();
    response.extensions_mut().insert(grant.deliver());
    Ok(response)
}

async fn renew(
    State(locks): State<Locks>,
    target: Target,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, ApiError> {
    let (store_name, resource_id, namespace) = named(target, query.as_deref())?;
    let mut fields = read(body).await?;
    let request = pb::RenewLockRequest {
        store_name,
        resource_id,
        namespace,
        lock_id: fields.text("lockID")?,
        ttl: fields.duration("ttl")?,
        detach: fields.flag("detach")?,
        max_hold: fields.duration("maxHold")?,
    };
    fields.end()?;
    let ttl = locks.renew_lock(request).await?;
    Ok(Json(json!({ "ttl": go_duration(ttl) })).into_response())
}

async fn unlock(
    State(locks): State<Locks>,
    target: Target,
    RawQuery(query): RawQuery,
    peer: Option<Extension<Peer>>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (store_name, resource_id, namespace) = named(target, query.as_deref())?;
    let mut fields = read(body).await?;
    let (force, lock_id) = (fields.flag("force")?, fields.text("lockID")?);
    let grant_id =
        if force { fields.selecting_text("grantID") } else { fields.text("grantID") }?;
    let reason = fields.text("reason")?;
    fields.end()?;
    if force {
        if !lock_id.is_empty() {
            let problem = "is given with force, which ends the grants of others too; leave out one \
                        of the two, or give grantID";
            return Err(Violation::new("lockID", problem).into());
        }
        let request =
            pb::ForceUnlockRequest { store_name, resource_id, namespace, grant_id, reason };
        locks.force(request, peer.map(|Extension(peer)| peer)).await?;
    } else if !grant_id.is_empty() && lock_id.is_empty() {
        let problem = "needs \"force\": true, because it proves no ownership; or give lockID";
        return Err(Violation::new("grantID", problem).into());
    } else {
        let request = pb::UnlockRequest { store_name, resource_id, namespace, lock_id };
        locks.unlock_lock(request).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn check_locks(
    State(locks): State<Locks>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, ApiError> {
    if let Some(pair) = query::pairs(query.as_deref().unwrap_or_default()).next() {
        return Err(query::unknown(pair.name(), "none").into());
    }
    let body = body::read_up_to(check::BYTES_MAX, body).await.map_err(unread)?;
    let request = check::read(Fields::read(&body)?)?;
    Ok(Json(check::json(&check::answer(&locks, request)?)).into_response())
}

async fn no_resource() -> ApiError {
    let missing = Violation::new(
        "resourceID",
        "is missing from the path; use /v1.0-alpha2/lock/STORE/RESOURCE",
    );
    missing.into()
}

/// The names in the URL: the store, the resource, and the segments of its namespace.
fn named(
    target: Target,
    query: Option<&str>,
) -> Result<(String, String, Vec<String>), Violation> {
    let Path((store_name, resource_id)) =
        target.map_err(|error| Violation::new("resourceID", error.body_text()))?;
    let mut namespace = Vec::new();
    for pair in query::pairs(query.unwrap_or_default()) {
        match pair.name() {
            "namespace" => namespace.push(pair.value("namespace")?),
            other => return Err(query::unknown(other, "namespace")),
        }
    }
    Ok((store_name, resource_id, namespace))
}

async fn read(body: Body) -> Result<Fields, ApiError> {
    let body = body::read(body).await.map_err(unread)?;
    let fields = Fields::read(&body)?;
    fields.check_no_namespace()?;
    Ok(fields)
}

fn unread(error: BodyError) -> ApiError {
    match error {
        BodyError::Overloaded => LockError::Overloaded.into(),
        _ => Violation::new("body", format!("was not read: {error}")).into(),
    }
}
