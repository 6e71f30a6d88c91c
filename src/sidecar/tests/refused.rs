//! A refused request leaves nothing behind.

use std::sync::atomic::Ordering;

use super::*;

/// A refused acquisition starts no renewal that takes the lock later.
/// Trap: sidecar 12
#[tokio::test(start_paused = true)]
async fn a_refused_acquisition_renews_nothing() {
    let setup = setup();
    let stores = Stores::default();
    let (store, script) = load(&stores);
    let locks = Locks::new(stores, setup.engine.clone(), app());
    let held = store.try_lock(AcquireRequest::new("lock||r".parse().unwrap())).await.unwrap();
    let refused = locks.acquire(LockCall { ttl: None, ..call() }).await.unwrap_err();
    assert!(matches!(refused, ApiError::Lock(LockError::Locked { .. })));
    drop(held);
    sleep(Duration::from_secs(1)).await;
    assert!(
        store.try_lock(AcquireRequest::new("lock||r".parse().unwrap())).await.is_ok(),
        "free at once"
    );
    sleep(TTL * 2).await;
    assert_eq!((script.renewals.load(Ordering::SeqCst), setup.engine.held()), (0, 0));
    assert!(
        store.try_lock(AcquireRequest::new("lock||r".parse().unwrap())).await.is_ok(),
        "it is free"
    );
}
