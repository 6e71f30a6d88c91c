//! alpha1 over HTTP.

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    http::HeaderValue,
    response::{IntoResponse, Response},
    routing::post,
};
use leasehold_net::answers::Delivery;
use leasehold_proto::dapr::{TryLockRequest, UnlockRequest};
use serde_json::json;

use super::{Alpha1, Alpha1Error, FENCING_TOKEN, json};
use crate::api::body;

type StoreName = Result<Path<String>, PathRejection>;

/// The routes of alpha1, also with the trailing slash that daprd strips.
pub fn routes(alpha1: Alpha1) -> Router {
    Router::new()
        .route("/v1.0-alpha1/lock/{store}", post(try_lock))
        .route("/v1.0-alpha1/lock/{store}/", post(try_lock))
        .route("/v1.0-alpha1/unlock/{store}", post(unlock))
        .route("/v1.0-alpha1/unlock/{store}/", post(unlock))
        .with_state(alpha1)
}

async fn try_lock(
    State(alpha1): State<Alpha1>,
    store: StoreName,
    body: Body,
) -> Result<Response, Alpha1Error> {
    let body: json::TryLockBody = json::read(&read_body(body).await?)?;
    let granted = alpha1
        .try_lock(TryLockRequest {
            store_name: named(store),
            resource_id: body.resource_id,
            lock_owner: body.lock_owner,
            expiry_in_seconds: body.expiry_in_seconds,
        })
        .await?;
    let mut response = Json(json!({ "success": granted.is_some() })).into_response();
    if let Some(granted) = granted {
        if let Some(token) = granted.token {
            response.headers_mut().insert(FENCING_TOKEN, HeaderValue::from(token.get()));
        }
        response.extensions_mut().insert(Delivery::of(granted.receipt));
    }
    Ok(response)
}

async fn unlock(
    State(alpha1): State<Alpha1>,
    store: StoreName,
    body: Body,
) -> Result<Response, Alpha1Error> {
    let body: json::UnlockBody = json::read(&read_body(body).await?)?;
    let status = alpha1
        .unlock(UnlockRequest {
            store_name: named(store),
            resource_id: body.resource_id,
            lock_owner: body.lock_owner,
        })
        .await?;
    Ok(Json(json!({ "status": status as i32 })).into_response())
}

/// A name that is not UTF-8 names no store: `Alpha1` reports that in its order of
/// validation.
fn named(store: StoreName) -> String {
    store.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |Path(name)| name)
}

async fn read_body(body: Body) -> Result<bytes::Bytes, Alpha1Error> {
    body::read(body).await.map_err(|error| Alpha1Error::BodyRead(error.to_string()))
}
