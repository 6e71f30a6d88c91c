//! A reload of component YAML strands no lock that is held.

use super::*;
use crate::{
    lock::{LockId, UnlockRequest},
    sidecar::api::{
        alpha1::{Alpha1, Unlock, UnlockStatus},
        alpha2::inspection::Force,
    },
};

/// The API over stores that change.
struct Api {
    locks: Locks,
    stores: Stores,
    engine: Engine,
}

impl Api {
    fn of(setup: &Setup) -> Self {
        let (stores, engine) = (Stores::default(), setup.engine.clone());
        let locks = Locks::new(stores.clone(), engine.clone(), app());
        Self { locks, stores, engine }
    }

    /// Adds or replaces the component `s`; its backend is a new one.
    fn load(&self, prefix: KeyPrefix) -> (Store, Arc<Script>) {
        let (backend, script, settings) = Scripted::new();
        let store = Store::new(Arc::new(backend), settings);
        self.load_over(prefix, &store);
        (store, script)
    }

    fn load_over(&self, prefix: KeyPrefix, store: &Store) {
        self.stores.insert(NamedStore::new("s", "lock.memory", "v1", prefix, store.clone()));
    }

    async fn lock(&self) -> LockId {
        let acquired = self.locks.acquire(call()).await.unwrap();
        let lock_id = acquired.granted.lock_id.clone();
        let mut response = http::Response::new(http_body_util::Empty::<bytes::Bytes>::new());
        response.extensions_mut().insert(acquired.deliver(None));
        let body = crate::net::delivery::settle(response).into_body();
        http_body_util::BodyExt::collect(body).await.unwrap();
        lock_id
    }

    async fn unlock(&self, lock_id: &LockId) {
        self.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await.unwrap();
    }
}

async fn is_free(store: &Store, resource: &str) -> bool {
    store.try_lock(AcquireRequest::new(resource.parse().unwrap())).await.is_ok()
}

/// Trap 51.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_component_was_removed_is_renewed_and_unlocked_where_it_was_taken() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (before, _) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    let _ = api.stores.remove("s");
    sleep(TTL * 3).await;
    assert!(!is_free(&before, "lock||r").await);
    assert!(setup.notices.try_recv().is_err());
    api.unlock(&lock_id).await;
    assert!(is_free(&before, "lock||r").await);
    assert_eq!(api.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_keeps_its_key_when_the_key_prefix_changes() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (store, _) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    api.load_over(KeyPrefix::AppId, &store);
    sleep(TTL * 3).await;
    assert!(!is_free(&store, "lock||r").await && is_free(&store, "lock||app||r").await);
    assert!(setup.notices.try_recv().is_err());
    api.unlock(&lock_id).await;
    assert!(is_free(&store, "lock||r").await);
}

/// They are two grants of two backends, and each is its holder's.
#[tokio::test(start_paused = true)]
async fn a_lock_of_the_backend_before_stays_held_beside_one_of_the_new() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (before, _) = api.load(KeyPrefix::None);
    let older = api.lock().await;
    let (after, _) = api.load(KeyPrefix::None);
    let newer = api.lock().await;
    sleep(TTL * 3).await;
    assert_eq!(api.engine.held(), 2);
    assert!(!is_free(&before, "lock||r").await && !is_free(&after, "lock||r").await);
    for lock_id in [&newer, &older] {
        api.unlock(lock_id).await;
    }
    assert!(is_free(&before, "lock||r").await && is_free(&after, "lock||r").await);
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(api.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_force_reaches_what_is_held_in_the_store_before() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (before, _) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    let (after, _) = api.load(KeyPrefix::None);
    api.locks.force_unlock("s", &"r".parse().unwrap(), Force::default()).await.unwrap();
    let lost = setup.notices.try_recv().unwrap();
    assert_eq!((lost.lock_id, lost.cause), (lock_id, Cause::Forced));
    assert!(is_free(&before, "lock||r").await && is_free(&after, "lock||r").await);
    let _ = api.stores.remove("s");
    assert!(
        api.locks.force_unlock("s", &"r".parse().unwrap(), Force::default()).await.is_err(),
        "there is no such store"
    );
}

/// The component's TTL was changed, say: both stores are one backend.
#[tokio::test(start_paused = true)]
async fn a_force_after_a_reload_spares_the_next_in_line() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (store, _) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    api.load_over(KeyPrefix::None, &store);
    let waiting = store.clone();
    let next = tokio::spawn(async move {
        waiting.lock(AcquireRequest::new("lock||r".parse().unwrap())).await
    });
    settle().await;
    api.locks.force_unlock("s", &"r".parse().unwrap(), Force::default()).await.unwrap();
    assert_eq!(setup.notices.try_recv().unwrap().lock_id, lock_id);
    let next = next.await.unwrap().unwrap();
    assert!(!is_free(&store, "lock||r").await, "it is the next one's");
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn alpha1_unlocks_it_too() {
    let setup = setup();
    let api = Api::of(&setup);
    let (before, _) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    let _ = api.stores.remove("s");
    let alpha1 = Alpha1::new(api.stores.clone(), api.engine.clone(), app());
    let unlock = Unlock {
        store_name: "s".into(),
        resource_id: "r".into(),
        owner: lock_id.as_str().to_owned(),
    };
    assert_eq!(alpha1.unlock(unlock.clone()).await, Ok(UnlockStatus::Success));
    assert!(is_free(&before, "lock||r").await);
    assert!(alpha1.unlock(unlock).await.is_err());
}

/// The app renews by itself through two sidecars, one of which does not know.
async fn held_elsewhere(api: &Api, store: &Store) -> LockId {
    let lock_id = api.lock().await;
    let request = crate::lock::RenewRequest {
        resource: "lock||r".parse().unwrap(),
        lock_id: lock_id.clone(),
        ttl: Some(TTL * 100),
    };
    store.renew(request).await.unwrap();
    lock_id
}

/// Trap 52.
#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_lock_that_another_sidecar_renewed_releases_it() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (store, script) = api.load(KeyPrefix::None);
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

#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_lock_that_is_really_lost_is_told_why() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (store, script) = api.load(KeyPrefix::None);
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
    let api = Api::of(&setup);
    let (store, script) = api.load(KeyPrefix::None);
    let lock_id = api.lock().await;
    store.unlock(UnlockRequest::force("lock||r".parse().unwrap())).await.unwrap();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Forced);
    script.on_unlock(Fault::Silent);
    let asked = Instant::now();
    assert!(api.locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await.is_err());
    assert_eq!(ms(asked), 0);
}
