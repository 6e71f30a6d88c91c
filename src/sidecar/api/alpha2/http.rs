//! alpha2 over HTTP.

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, Version},
    response::{IntoResponse, Response},
    routing::{any, post},
};
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use super::{
    LockCall, Locks, Patience, check,
    inspection::{self, Force},
    json::{self, Fields, go_duration},
    ndjson, stream, wire,
};
use crate::{
    held::MaxHold,
    lock::{LockError, LockId, RequestId, Violation},
    net::{self, peer::Peer, status::ErrorDescription},
    sidecar::{
        api::{
            body::{self, BodyError},
            query,
        },
        identity::Label,
        name::ResourceName,
    },
};

/// The fields of a request to lock.
const LOCK_FIELDS: [&str; 9] = [
    "immediate",
    "ttl",
    "wait",
    "requestID",
    "mode",
    "maxHold",
    "noRenewal",
    "metadata",
    "label",
];

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
) -> Result<Response, ErrorDescription> {
    let arrived = Instant::now();
    let (store_name, resource) = named(target, query.as_deref())?;
    let fields = read(body, &LOCK_FIELDS).await?;
    fields.check_metadata()?;
    let Patience { immediate, wait_end } =
        Patience::new(arrived, fields.flag("immediate")?, fields.wait()?);
    let call = LockCall {
        store_name,
        resource,
        immediate,
        ttl: fields.ttl()?,
        request_id: RequestId::new(&fields.text("requestID")?)?,
        mode: fields.mode()?,
        max_hold: fields.max_hold()?,
        no_renewal: fields.flag("noRenewal")?,
        label: Label::new(&fields.text("label")?)?,
        arrived,
        wait_end,
        deadline: None,
    };
    if ndjson::is_wanted(&headers) {
        let max_hold = if version < Version::HTTP_2 {
            warn!(
                "a lock's stream over HTTP/1 takes a connection of its own; prefer HTTP/2 or gRPC"
            );
            // The system acknowledges what is sent to an app that stands still.
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
) -> Result<Response, ErrorDescription> {
    let (store_name, resource) = named(target, query.as_deref())?;
    let fields = read(body, &["lockID", "ttl", "detach", "maxHold"]).await?;
    let lock_id = lock_id(&fields)?;
    let change = wire::change(fields.flag("detach")?, fields.max_hold()?)?;
    let renewed = locks.renew(&store_name, &resource, lock_id, fields.ttl()?, change).await?;
    Ok(Json(json!({ "ttl": go_duration(renewed.ttl) })).into_response())
}

async fn unlock(
    State(locks): State<Locks>,
    target: Target,
    RawQuery(query): RawQuery,
    peer: Option<Extension<Peer>>,
    body: Body,
) -> Result<StatusCode, ErrorDescription> {
    let (store_name, resource) = named(target, query.as_deref())?;
    let fields = read(body, &["lockID", "force", "grantID", "reason"]).await?;
    if fields.flag("force")? {
        if !fields.text("lockID")?.is_empty() {
            let told = "is given with force, which ends the grants of others too; leave out one \
                        of the two, or give grantID";
            return Err(Violation::new("lockID", told).into());
        }
        let grant_id = net::inspection::grant_id(&fields.selecting_text("grantID")?)?;
        let reason = net::inspection::reason(&fields.text("reason")?)?.to_owned();
        let force = Force { grant_id, reason, peer: peer.map(|Extension(peer)| peer) };
        locks.force_unlock(&store_name, &resource, force).await?;
    } else if !fields.text("grantID")?.is_empty() && fields.text("lockID")?.is_empty() {
        let told = "needs \"force\": true, because it proves no ownership; or give lockID";
        return Err(Violation::new("grantID", told).into());
    } else {
        locks.unlock(&store_name, &resource, lock_id(&fields)?).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn check_locks(
    State(locks): State<Locks>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Result<Response, ErrorDescription> {
    if let Some(pair) = query::pairs(query.as_deref().unwrap_or_default()).next() {
        return Err(query::unknown(pair.name(), "none").into());
    }
    let body = body::read_up_to(check::BYTES_MAX, body).await.map_err(unread)?;
    let fields = Fields::read(&body)?.only(&["locks"])?;
    Ok(Json(check::http(&locks, &fields)?).into_response())
}

async fn no_resource() -> ErrorDescription {
    let missing = Violation::new(
        "resourceID",
        "is missing from the path; use /v1.0-alpha2/lock/STORE/RESOURCE",
    );
    missing.into()
}

fn lock_id(fields: &Fields) -> Result<LockId, Violation> {
    let lock_id = LockId::optional(&fields.text("lockID")?)?;
    lock_id.ok_or_else(|| {
        Violation::new(
            "lockID",
            "is missing; give the ID that came with the grant, in a JSON body",
        )
    })
}

/// The names in the URL: the store, and the resource in the namespace of the query.
fn named(target: Target, query: Option<&str>) -> Result<(String, ResourceName), Violation> {
    let Path((store_name, key)) =
        target.map_err(|error| Violation::new("resourceID", error.body_text()))?;
    let mut namespace = Vec::new();
    for pair in query::pairs(query.unwrap_or_default()) {
        match pair.name() {
            "namespace" => namespace.push(pair.value("namespace")?),
            other => return Err(query::unknown(other, "namespace")),
        }
    }
    Ok((store_name, wire::resource(&key, namespace)?))
}

async fn read(body: Body, known: &[&str]) -> Result<Fields, ErrorDescription> {
    let body = body::read(body).await.map_err(unread)?;
    let fields = Fields::read(&body)?;
    fields.check_no_namespace()?;
    Ok(fields.only(known)?)
}

fn unread(error: BodyError) -> ErrorDescription {
    match error {
        BodyError::Overloaded => LockError::Overloaded.into(),
        _ => Violation::new("body", format!("was not read: {error}")).into(),
    }
}
