//! CheckLocks on a lock that could not be unlocked.

use leasehold_proto::locks::{CheckLocksRequest, LockCheck, LockRef, locks_server};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lock_whose_unlock_failed_is_not_valid() {
    let setup = setup();
    let stores = Stores::default();
    let (_, script) = load(&stores);
    let locks = Locks::new(stores, setup.engine.clone(), app());
    let acquired = locks.acquire(call()).await.unwrap();
    let lock_id = acquired.granted.lock_id.clone();
    let (_guard, _ended) = acquired.hold_for_stream().unwrap();
    let check = async || {
        let lock = LockRef {
            store_name: "s".into(),
            resource_id: "r".into(),
            lock_id: lock_id.as_str().into(),
            ..Default::default()
        };
        let request = tonic::Request::new(CheckLocksRequest { locks: vec![lock] });
        locks_server::Locks::check_locks(&locks, request).await.unwrap().into_inner().locks
    };
    let valid = check().await.remove(0);
    assert!(valid.valid_for.is_some() && valid.reason.is_empty(), "{valid:?}");
    script.on_unlock(Fault::Unreachable);
    locks.unlock("s", &"r".parse().unwrap(), lock_id.clone()).await.unwrap_err();
    let unlocking = LockCheck { reason: "UNLOCKING".into(), ..Default::default() };
    assert_eq!(check().await, [unlocking]);
}
