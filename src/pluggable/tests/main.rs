//! Lock stores of other processes behind the port: our own component, and a
//! scripted store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod fake;
mod foreign;
mod inspection;
mod ours;
mod refusals;
mod renewal;
mod uncertain;
mod waiting;

use std::{path::PathBuf, time::Duration};

use leasehold_lock::{
    AcquireRequest, LockError, RenewRequest, Store, UnlockRequest, observe::Unobserved,
};
use leasehold_pluggable::PluggableComponent;

/// An instance `i` at this socket with these properties.
fn component(socket: PathBuf, properties: &[(&str, &str)]) -> PluggableComponent {
    PluggableComponent {
        observer: Unobserved::store(),
        socket,
        instance: "i".to_owned(),
        properties: properties
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        init_timeout: Duration::from_secs(5),
    }
}

async fn renew(store: &Store, resource: &str, lock_id: &str) -> Result<Duration, LockError> {
    let request = RenewRequest {
        resource: resource.parse().unwrap(),
        lock_id: lock_id.parse().unwrap(),
        ttl: Some(Duration::from_secs(20)),
    };
    store.renew(request).await.map(|renewed| renewed.ttl)
}

async fn unlock(store: &Store, resource: &str, lock_id: &str) -> Result<(), LockError> {
    let (resource, lock_id) = (resource.parse().unwrap(), lock_id.parse().unwrap());
    store.unlock(UnlockRequest::owner(resource, lock_id)).await
}

async fn force(store: &Store, resource: &str) -> Result<(), LockError> {
    store.unlock(UnlockRequest::force(resource.parse().unwrap())).await
}

/// A request for `r` with a caller's own lock ID.
fn owned(lock_id: &str) -> AcquireRequest {
    AcquireRequest {
        lock_id: Some(lock_id.parse().unwrap()),
        ..AcquireRequest::new("r".parse().unwrap())
    }
}
