//! The lock API over the renewal engine and a backend that fails on demand, in
//! paused time.

mod check;
mod refused;
mod replay;
mod unary;
mod unlock;

use std::{sync::Arc, time::Duration};

use leasehold_lock::{AcquireRequest, Granted, LockError, Mode, Store};
use tokio::time::{Instant, sleep};

use super::{
    api::{
        alpha2::{LockCall, Locks},
        error::ApiError,
    },
    identity::Identity,
    prefix::KeyPrefix,
    stores::{NamedStore, Stores},
};
use crate::held::{
    Cause, Change,
    tests::{
        Setup, TTL, ms,
        scripted::{Fault, Script, Scripted},
        settle, setup,
    },
};

/// An immediate Lock of the resource `r` in the store `s`.
fn call() -> LockCall {
    LockCall {
        store_name: "s".into(),
        resource: "r".parse().unwrap(),
        immediate: true,
        ttl: Some(TTL),
        request_id: None,
        mode: Mode::Exclusive,
        max_hold: None,
        no_renewal: false,
        label: None,
        arrived: Instant::now(),
        wait_end: None,
        deadline: None,
    }
}

fn app() -> Identity {
    Identity::new("app", &"instance".parse().unwrap())
}

/// A store over a scripted backend, as the component `s`.
fn load(stores: &Stores) -> (Store, Arc<Script>) {
    let (backend, script, settings) = Scripted::new();
    let store = Store::new(Arc::new(backend), settings);
    stores.insert(NamedStore::new("s", "lock.memory", "v1", KeyPrefix::None, store.clone()));
    (store, script)
}
