//! The lock API over the renewal engine and a backend that fails on demand, in
//! paused time.

mod check;
mod refused;
mod repetitions;
mod replay;
mod unary;
mod unlock;

use std::{sync::Arc, time::Duration};

use leasehold_held::{Cause, Change, Engine, EngineOptions, LockStore, LostLock};
use leasehold_lock::{AcquireRequest, Granted, Instant as LockInstant, LockError, Mode, Store};
use leasehold_memory::Memory;
use leasehold_testing::scripted::{Fault, Script, Scripted};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use super::{
    api::{
        alpha2::{LockCall, Locks},
        error::ApiError,
    },
    app_names::AppNames,
    identity::Identity,
    stores::{NamedStore, Stores},
};

const TTL: Duration = Duration::from_secs(30);

/// A renewal engine, and what it reports.
struct Setup {
    engine: Engine,
    notices: mpsc::Receiver<LostLock>,
    _healthy: watch::Sender<bool>,
}

fn setup() -> Setup {
    let (notify, notices) = mpsc::channel(1000);
    let (healthy, health) = watch::channel(true);
    let engine = Engine::start(EngineOptions::default(), health, notify);
    Setup { engine, notices, _healthy: healthy }
}

/// Lets every task run until it waits for the clock.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn ms(since: LockInstant) -> u128 {
    since.elapsed().as_millis()
}

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
        label: String::new(),
        arrived: Instant::now(),
        wait_end: None,
        deadline: None,
        streamed: false,
    }
}

fn app() -> Identity {
    Identity::new("app", &"instance".parse().unwrap())
}

/// A store over a scripted backend, as the component `s`.
fn load(stores: &Stores) -> (Store, Arc<Script>) {
    let (backend, script, settings) = Scripted::new(Memory::new);
    let store = Store::new(Arc::new(backend), settings);
    stores.insert(named("s", store.clone()));
    (store, script)
}

/// A store without a key prefix, as the component of this name.
pub(super) fn named(name: &str, store: Store) -> NamedStore {
    let names = AppNames::new("none", name, "app").unwrap();
    NamedStore::new("lock.memory", "v1", names, LockStore::new(name, store))
}
