//! Requests that a store refuses without changing anything.

use std::time::Duration;

use leasehold_lock::{AcquireRequest, LockError, RenewRequest, UnlockRequest};

use crate::faulty::{hold, request, store};

const TOO_LONG: Option<Duration> = Some(Duration::from_secs(24 * 3600 + 1));

fn refused_field<T: std::fmt::Debug>(result: Result<T, LockError>) -> String {
    match result {
        Err(LockError::InvalidRequest(violation)) => violation.field,
        other => panic!("expected an invalid request, got {other:?}"),
    }
}

#[tokio::test]
async fn a_ttl_above_the_maximum_is_refused_with_the_name_of_its_field() {
    let (store, faulty) = store();
    let asked = AcquireRequest { ttl: TOO_LONG, ..request("r") };
    assert_eq!(refused_field(store.try_lock(asked.clone()).await), "ttl");
    assert_eq!(refused_field(store.lock(asked).await), "ttl");
    assert_eq!(faulty.memory.records(), 0);
    let resource = "r".parse().unwrap();
    let lock_id = hold(&store, "r").await.lock_id;
    let renewal = RenewRequest { resource, lock_id, ttl: TOO_LONG };
    assert_eq!(refused_field(store.renew(renewal).await), "ttl");
}

#[tokio::test]
async fn a_force_on_a_free_resource_is_not_found() {
    let (store, _) = store();
    let force = UnlockRequest::force("r".parse().unwrap());
    assert_eq!(store.unlock(force).await, Err(LockError::NotFound { held: false }));
}
