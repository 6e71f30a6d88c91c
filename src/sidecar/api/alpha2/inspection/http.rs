//! Inspection over HTTP.

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::HeaderMap,
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures_util::StreamExt as _;
use leasehold_lock::Violation;
use leasehold_net::{inspection::json, peer::Peer};
use leasehold_proto::locks as pb;
use serde_json::{Value, json};

use super::{
    super::{Locks, ndjson},
    params::Params,
};
use crate::api::{body, error::ApiError};

/// The routes of inspection. `GET` of one resource shares the path of its lock calls.
pub(in super::super) fn routes(locks: Locks) -> Router {
    Router::new()
        .route("/v1.0-alpha2/lock/{store}/{*resource}", get(get_one))
        .route("/v1.0-alpha2/locks/{store}", get(list_or_watch).delete(end))
        .with_state(locks)
}

async fn get_one(
    State(locks): State<Locks>,
    target: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let Path((store_name, resource_id)) =
        target.map_err(|error| Violation::new("resourceID", error.body_text()))?;
    let params = Params::read(query.as_deref(), &["queue", "page"])?;
    let (queue, page_token) = (params.limit("queue")?, params.text("page"));
    if queue.is_none() && !page_token.is_empty() {
        let problem = "continues a queue; give queue as well";
        return Err(Violation::new("page", problem).into());
    }
    let asked = pb::GetLockRequest {
        store_name: store_name.clone(),
        resource_id: resource_id.clone(),
        namespace: params.namespace.clone(),
        ..Default::default()
    };
    let Some(page_size) = queue else {
        return Ok(Json(json::of_lock(&locks.get_one(asked).await?)));
    };
    let namespace = params.namespace;
    let queued =
        pb::ListWaitersRequest { store_name, resource_id, page_size, page_token, namespace };
    // Concurrent, so that both end within one `operationTimeout`.
    let (found, page) = tokio::try_join!(locks.get_one(asked), locks.waiters(queued))?;
    let mut answer = json::of_lock(&found);
    answer["queue"] = page.waiters.iter().map(json::of_waiter).collect();
    put_next_page(&mut answer, page.next_page_token);
    Ok(Json(answer))
}

type StoreName = Result<Path<String>, PathRejection>;

async fn list_or_watch(
    State(locks): State<Locks>,
    store_name: StoreName,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let store_name = named(store_name)?;
    if ndjson::is_wanted(&headers) {
        let params = Params::read(query.as_deref(), &["children", "prefix"])?;
        return watch(&locks, store_name, params);
    }
    let known = ["children", "prefix", "holderPrefix", "limit", "page"];
    let params = Params::read(query.as_deref(), &known)?;
    let asked = pb::ListLocksRequest {
        store_name,
        holder_prefix: params.text("holderPrefix"),
        page_size: params.limit("limit")?.unwrap_or_default(),
        page_token: params.text("page"),
        scope: Some(scope(params)?),
    };
    let page = locks.list(asked).await?;
    let locks: Vec<_> = page.locks.iter().map(json::of_state).collect();
    let mut answer = json!({ "locks": locks });
    put_next_page(&mut answer, page.next_page_token);
    Ok(Json(answer).into_response())
}

fn watch(locks: &Locks, store_name: String, params: Params) -> Result<Response, ApiError> {
    let scope = Some(scope(params)?);
    let watch =
        locks.watch(pb::WatchLocksRequest { store_name, scope, ..Default::default() })?;
    Ok(ndjson::response(watch.map(|event| match event {
        Ok(event) => json::of_event(&event),
        Err(error) => ndjson::failed(error.into()),
    })))
}

async fn end(
    State(locks): State<Locks>,
    store_name: StoreName,
    RawQuery(query): RawQuery,
    peer: Option<Extension<Peer>>,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let store_name = named(store_name)?;
    let known = ["children", "prefix", "holderPrefix", "all", "dryRun", "limit", "reason"];
    let params = Params::read(query.as_deref(), &known)?;
    // The body would be ignored, `dryRun` too.
    if !body::read(body).await.is_ok_and(|body| body.is_empty()) {
        let problem = "is not read by this call; write its parameters into the query";
        return Err(Violation::new("body", problem).into());
    }
    // `scope` reads an empty prefix as no prefix, which would end all locks of the
    // namespace.
    params.selecting_text("prefix")?;
    let asked = pb::EndLocksRequest {
        store_name,
        all: params.flag("all")?,
        holder_prefix: params.selecting_text("holderPrefix")?,
        dry_run: params.flag("dryRun")?,
        limit: params.limit("limit")?.unwrap_or_default(),
        reason: params.text("reason"),
        scope: Some(scope(params)?),
        ..Default::default()
    };
    let answer = locks.end(asked, peer.map(|Extension(peer)| peer)).await?;
    let ended: Vec<_> = answer.ended.iter().map(json::of_state).collect();
    Ok(Json(json!({ "ended": ended, "more": answer.more })))
}

fn named(store_name: StoreName) -> Result<String, Violation> {
    let Path(name) =
        store_name.map_err(|error| Violation::new("storeName", error.body_text()))?;
    Ok(name)
}

fn scope(params: Params) -> Result<pb::LockScope, Violation> {
    let (children, prefix) = (params.flag("children")?, params.text("prefix"));
    Ok(pb::LockScope { namespace: params.namespace, children, prefix })
}

fn put_next_page(answer: &mut Value, token: String) {
    if !token.is_empty() {
        answer["nextPage"] = token.into();
    }
}
