//! Lock stores of other processes, behind the port: our own component, and a
//! store that does as it is told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod fake;
mod ours;
mod refusals;
mod renewal;
mod uncertain;
mod waiting;

use std::{path::PathBuf, time::Duration};

use leasehold::{
    backend::pluggable::PluggableComponent,
    lock::{AcquireRequest, LockError, RenewRequest, Store, UnlockRequest},
};

/// An instance `i` at this socket with these properties.
fn component(socket: PathBuf, properties: &[(&str, &str)]) -> PluggableComponent {
    PluggableComponent {
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
        resource_id: resource.to_owned(),
        lock_id: lock_id.to_owned(),
        ttl: Some(Duration::from_secs(20)),
    };
    store.renew(request).await.map(|renewed| renewed.ttl)
}

async fn unlock(store: &Store, resource: &str, lock_id: &str) -> Result<(), LockError> {
    let request = UnlockRequest {
        resource_id: resource.to_owned(),
        lock_id: lock_id.to_owned(),
        force: false,
    };
    store.unlock(request).await
}

async fn force(store: &Store, resource: &str) -> Result<(), LockError> {
    let request =
        UnlockRequest { resource_id: resource.to_owned(), lock_id: String::new(), force: true };
    store.unlock(request).await
}

/// A request for `r` with a caller's own lock ID.
fn owned(lock_id: &str) -> AcquireRequest {
    AcquireRequest { lock_id: lock_id.to_owned(), ..AcquireRequest::new("r") }
}
