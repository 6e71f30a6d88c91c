//! The engine over a backend that fails on demand, in paused time.

mod chance;
mod change;
mod give_up;
mod known;
mod loss;
mod renewal;
mod schedule;
mod shared;
mod tally;
mod unlock;

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    AcquireRequest, Granted, Instant, LockError, LockId, Mode, Renewed, ResourceId, Store,
};
use leasehold_memory::Memory;
use leasehold_testing::scripted::{Script, Scripted};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::sleep,
};

use super::{
    Change, Engine, EngineOptions, HeldError, HeldGuard, HoldEnd, Holding, LockStore, LostLock,
    MaxHold, Resource,
};

const TTL: Duration = Duration::from_secs(30);

/// An engine, a store over a scripted backend, and the engine's notices.
struct Setup {
    engine: Engine,
    store: Arc<LockStore>,
    script: Arc<Script>,
    notices: mpsc::Receiver<LostLock>,
    healthy: watch::Sender<bool>,
}

fn setup() -> Setup {
    setup_with(EngineOptions::default())
}

fn setup_with(options: EngineOptions) -> Setup {
    let (sender, notices) = mpsc::channel(1000);
    let (healthy, health) = watch::channel(true);
    let (store, script) = scripted("s");
    Setup { engine: Engine::start(options, health, sender), store, script, notices, healthy }
}

pub(super) fn scripted(name: &str) -> (Arc<LockStore>, Arc<Script>) {
    let (backend, script, settings) = Scripted::new(Memory::new);
    let store = Store::new(Arc::new(backend), settings);
    (named(name, store), script)
}

fn named(name: &str, store: Store) -> Arc<LockStore> {
    Arc::new(LockStore::new(name, store))
}

impl Setup {
    async fn acquire(&self, resource: &str, ttl: Duration) -> Granted {
        let request =
            AcquireRequest { ttl: Some(ttl), ..AcquireRequest::new(resource.parse().unwrap()) };
        let granted = self.store.store().try_lock(request).await.unwrap();
        granted.receipt.accept();
        granted
    }

    fn holding(&self, resource: &str, granted: &Granted) -> Holding {
        Holding {
            resource: self.resource(resource),
            app_resource: ResourceId::new(resource).unwrap(),
            lock_id: granted.lock_id.clone(),
            attempt: granted.attempt,
            grant_id: granted.id,
            mode: Mode::Exclusive,
            token: granted.token,
            request_id: None,
            ttl: granted.ttl,
            asked: granted.ttl,
            since: granted.since,
            renewed: true,
            max_hold: MaxHold::Unlimited,
            place: self.engine.place().unwrap(),
            deadlines: None,
        }
    }

    async fn hold(&self, resource: &str) -> Granted {
        let granted = self.acquire(resource, TTL).await;
        self.keep(self.holding(resource, &granted));
        granted
    }

    fn keep(&self, holding: Holding) {
        self.engine.hold(holding);
    }

    async fn stream(&self, resource: &str) -> (HeldGuard, oneshot::Receiver<HoldEnd>) {
        let granted = self.acquire(resource, TTL).await;
        let (guard, end) = self.engine.hold_for_stream(self.holding(resource, &granted));
        (guard.unwrap(), end)
    }

    fn resource(&self, id: &str) -> Resource {
        Resource { lock_store: Arc::clone(&self.store), id: ResourceId::new(id).unwrap() }
    }

    async fn unlock(&self, resource: &str, lock_id: LockId) -> Result<(), HeldError> {
        self.engine.unlock(&self.resource(resource), lock_id).await
    }

    async fn force(&self, resource: &str) -> Result<(), LockError> {
        self.engine
            .force_unlock(self.resource(resource), None, self.store.store().until())
            .await
    }

    async fn renew(
        &self,
        resource: &str,
        lock_id: LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, HeldError> {
        self.change(resource, lock_id, ttl, Change::Nothing).await
    }

    async fn change(
        &self,
        resource: &str,
        lock_id: LockId,
        ttl: Option<Duration>,
        change: Change,
    ) -> Result<Renewed, HeldError> {
        self.engine.renew(&self.resource(resource), lock_id, ttl, change).await
    }

    /// Whether nobody holds it in the backend.
    async fn is_free(&self, resource: &str) -> bool {
        match self.store.store().try_lock(AcquireRequest::new(resource.parse().unwrap())).await
        {
            Ok(_) => true,
            Err(LockError::Locked { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Lets every task run until it waits for the clock.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn ms(since: Instant) -> u128 {
    since.elapsed().as_millis()
}
