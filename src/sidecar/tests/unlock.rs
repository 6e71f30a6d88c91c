//! Unlocks of locks that are or were held here.

use leasehold_lock::{LockId, UnlockRequest};
use leasehold_proto::{
    dapr::{UnlockRequest as Alpha1Unlock, unlock_response::Status},
    locks::ForceUnlockRequest,
};

use super::*;
use crate::api::alpha1::Alpha1;

/// The API over one scripted store.
struct Api {
    locks: Locks,
    stores: Stores,
}

impl Api {
    fn of(setup: &Setup) -> (Self, Store, Arc<Script>) {
        let stores = Stores::default();
        let (store, script) = load(&stores);
        let locks = Locks::new(stores.clone(), setup.engine.clone(), app());
        (Self { locks, stores }, store, script)
    }

    async fn lock(&self) -> LockId {
        let acquired = self.locks.acquire(call()).await.unwrap();
        let lock_id = acquired.granted.lock_id.clone();
        acquired.deliver().accept();
        lock_id
    }

    async fn unlock(&self, lock_id: &LockId) {
        self.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await.unwrap();
    }
}

async fn is_free(store: &Store, resource: &str) -> bool {
    store.try_lock(AcquireRequest::new(resource.parse().unwrap())).await.is_ok()
}

/// Its renewal ends first.
#[tokio::test(start_paused = true)]
async fn alpha1_unlocks_it_too() {
    let setup = setup();
    let (api, store, _) = Api::of(&setup);
    let lock_id = api.lock().await;
    let alpha1 = Alpha1::new(api.stores.clone(), setup.engine.clone(), app());
    let unlock = Alpha1Unlock {
        store_name: "s".into(),
        resource_id: "r".into(),
        lock_owner: lock_id.as_str().to_owned(),
    };
    assert_eq!(alpha1.unlock(unlock.clone()).await, Ok(Status::Success));
    assert_eq!(setup.engine.held(), 0);
    assert_eq!(alpha1.unlock(unlock).await, Ok(Status::LockDoesNotExist));
    assert!(is_free(&store, "lock||r").await);
}

/// The app renews by itself through two sidecars, one of which does not know.
async fn held_elsewhere(api: &Api, store: &Store) -> LockId {
    let lock_id = api.lock().await;
    let request = leasehold_lock::RenewRequest {
        resource: "lock||r".parse().unwrap(),
        lock_id: lock_id.clone(),
        ttl: Some(TTL * 100),
    };
    store.renew(request).await.unwrap();
    lock_id
}

/// Trap: sidecar 52
#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_lock_that_another_sidecar_renewed_releases_it() {
    let mut setup = setup();
    let (api, store, script) = Api::of(&setup);
    let lock_id = held_elsewhere(&api, &store).await;
    script.on_every_renewal(Some(Fault::Unreachable));
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!(lost.cause, Cause::Unreachable);
    assert!(!is_free(&store, "lock||r").await, "it is held on");
    api.unlock(&lock_id).await;
    assert!(is_free(&store, "lock||r").await);
    let again = api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await;
    assert!(matches!(again, Err(ApiError::Lock(LockError::NotFound { .. }))));
}

/// Trap: sidecar 52
#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_lost_lock_returns_the_cause() {
    let mut setup = setup();
    let (api, store, script) = Api::of(&setup);
    let lock_id = api.lock().await;
    script.on_every_renewal(Some(Fault::Unreachable));
    setup.notices.recv().await.unwrap();
    sleep(TTL).await;
    for _ in 0..2 {
        let lost = api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await;
        let cause = Cause::Unreachable;
        assert_eq!(lost, Err(ApiError::Lost(cause)));
    }
    script.on_unlock(Fault::Unreachable);
    let lost = api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await;
    assert!(matches!(lost, Err(ApiError::Lost(_))), "still lost");
    let other = store.try_lock(AcquireRequest::new("lock||r".parse().unwrap())).await.unwrap();
    let lost = api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await;
    assert!(lost.is_err());
    assert!(!is_free(&store, "lock||r").await, "another's lock is left alone");
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_forced_lock_does_not_go_to_the_store() {
    let mut setup = setup();
    let (api, store, script) = Api::of(&setup);
    let lock_id = api.lock().await;
    store.unlock(UnlockRequest::force("lock||r".parse().unwrap())).await.unwrap();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Forced);
    script.on_unlock(Fault::Silent);
    let asked = leasehold_lock::Instant::now();
    assert!(api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await.is_err());
    assert_eq!(ms(asked), 0);
}

/// It once looked up the holder first, and then took a whole call's time again.
#[tokio::test(start_paused = true)]
async fn a_force_of_a_silent_store_takes_no_longer_than_any_call() {
    let setup = setup();
    let (api, store, script) = Api::of(&setup);
    script.hides.store(true, std::sync::atomic::Ordering::SeqCst);
    script.on_unlock(Fault::Silent);
    let asked = Instant::now();
    let force = ForceUnlockRequest {
        store_name: "s".into(),
        resource_id: "r".into(),
        ..ForceUnlockRequest::default()
    };
    api.locks.force(force, None).await.unwrap_err();
    let grace = Duration::from_millis(250);
    let took = asked.elapsed();
    assert!(took <= store.settings().operation_timeout + grace, "{took:?}");
}
