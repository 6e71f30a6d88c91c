//! Inspection: who holds what, who waits, and ending it, as an app sees it.

mod end;
mod fields;
mod over_grpc;
mod over_http;
mod tenants;
mod watch;

use std::time::Duration;

use leasehold_proto::locks::{
    EndLocksRequest, GetLockRequest, GetLockResponse, ListLocksRequest, LockRequest,
    LockResponse, LockScope, LockState, inspection_client::InspectionClient,
};
use leasehold_sidecar::{Hooks, stores::Stores};
use tokio::time::{Instant, sleep};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::{lock, request},
    harness::{APP, Harness, PATIENCE, STORE, memory, named, options, reason},
};

type Inspection = InspectionClient<Channel>;

async fn inspection(harness: &Harness) -> Inspection {
    InspectionClient::new(harness.channel().await)
}

fn segments(namespace: &[&str]) -> Vec<String> {
    namespace.iter().map(|&segment| segment.into()).collect()
}

fn within(namespace: &[&str], resource: &str) -> LockRequest {
    LockRequest { namespace: segments(namespace), ..request(resource) }
}

async fn take(harness: &Harness, request: LockRequest) -> LockResponse {
    lock(&mut harness.locks().await, request).await.unwrap()
}

fn get_request(resource: &str) -> GetLockRequest {
    GetLockRequest {
        store_name: STORE.into(),
        resource_id: resource.into(),
        ..Default::default()
    }
}

async fn get(harness: &Harness, resource: &str) -> GetLockResponse {
    inspection(harness).await.get_lock(get_request(resource)).await.unwrap().into_inner()
}

/// Returns once so many wait for a resource.
pub(crate) async fn waited_for_by(harness: &Harness, resource: &str, waiters: i32) {
    let give_up = Instant::now() + PATIENCE;
    while get(harness, resource).await.waiters != waiters {
        assert!(Instant::now() < give_up, "not {waiters} waiters within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn scope(namespace: &[&str], children: bool, prefix: &str) -> LockScope {
    LockScope { namespace: segments(namespace), children, prefix: prefix.into() }
}

/// Every name of the app.
fn all() -> LockScope {
    scope(&[], true, "")
}

fn list_request(scope: LockScope) -> ListLocksRequest {
    ListLocksRequest { store_name: STORE.into(), scope: Some(scope), ..Default::default() }
}

fn end_request(resource: &str) -> EndLocksRequest {
    EndLocksRequest {
        store_name: STORE.into(),
        resource_id: resource.into(),
        ..Default::default()
    }
}

fn end_scope(scope: LockScope) -> EndLocksRequest {
    EndLocksRequest { scope: Some(scope), ..end_request("") }
}

/// The names, in their order: segments and key joined by slashes.
fn names(locks: &[LockState]) -> Vec<String> {
    let name = |lock: &LockState| {
        [&lock.namespace[..], std::slice::from_ref(&lock.resource_id)].concat().join("/")
    };
    let mut names: Vec<_> = locks.iter().map(name).collect();
    names.sort();
    names
}

async fn listed(harness: &Harness, request: ListLocksRequest) -> Vec<String> {
    let answer = inspection(harness).await.list_locks(request).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, "");
    names(&answer.locks)
}

/// The field that a refused request names.
fn bad_field(status: &Status) -> String {
    assert_eq!(reason(status, "").0, "INVALID_REQUEST", "{status:?}");
    status.get_details_bad_request().unwrap().field_violations[0].field.clone()
}

/// Two components over one backend: `mem` has the names of the app `app`, and `none` those
/// of an app without an ID.
async fn two_tenants() -> Harness {
    let stores = Stores::default();
    let (memory, store) = memory();
    for (name, prefix) in [(STORE, "appid"), ("none", "none")] {
        stores.insert(named(name, prefix, APP, store.clone()));
    }
    Harness::over(options(), Hooks::default(), stores, memory).await
}
