//! Bad requests are refused by field, and change nothing.

use std::time::Duration;

use leasehold::lock::{AcquireRequest, LockError, Mode, RenewRequest, UnlockRequest};

use crate::faulty::{request, store};

fn refused_field<T: std::fmt::Debug>(result: Result<T, LockError>) -> String {
    match result {
        Err(LockError::InvalidRequest(violation)) => violation.field,
        other => panic!("expected a bad field, got {other:?}"),
    }
}

#[tokio::test]
async fn each_bad_field_of_a_lock_request_is_named() {
    let (store, faulty) = store();
    let long = "x".repeat(257);
    type Spoil = fn(&mut AcquireRequest, &str);
    let cases: [(&str, Spoil); 5] = [
        ("resource_id", |asked, _| asked.resource_id.clear()),
        ("ttl", |asked, _| asked.ttl = Some(Duration::from_secs(24 * 3600 + 1))),
        ("lock_id", |asked, long| asked.lock_id = long.into()),
        ("request_id", |asked, long| asked.request_id = long.into()),
        ("holder", |asked, long| asked.holder = long.into()),
    ];
    for (field, spoil) in cases {
        let mut asked = request("r");
        spoil(&mut asked, &long);
        assert_eq!(refused_field(store.try_lock(asked.clone()).await), field);
        assert_eq!(refused_field(store.lock(asked).await), field);
        assert_eq!(faulty.memory.records(), 0);
    }
}

#[tokio::test]
async fn shared_mode_is_unsupported() {
    let (store, _) = store();
    let mut asked = request("r");
    asked.mode = Mode::Shared;
    assert!(matches!(store.try_lock(asked).await, Err(LockError::Unsupported(_))));
}

#[tokio::test]
async fn a_renewal_and_an_unlock_need_a_lock_id() {
    let (store, _) = store();
    let renewal = RenewRequest { resource_id: "r".into(), lock_id: String::new(), ttl: None };
    assert_eq!(refused_field(store.renew(renewal).await), "lock_id");
    let unlock =
        UnlockRequest { resource_id: "r".into(), lock_id: String::new(), force: false };
    assert_eq!(refused_field(store.unlock(unlock).await), "lock_id");
}

#[tokio::test]
async fn a_force_on_a_free_resource_is_not_found() {
    let (store, _) = store();
    let force =
        UnlockRequest { resource_id: "r".into(), lock_id: "x".repeat(999), force: true };
    assert_eq!(store.unlock(force).await, Err(LockError::NotFound { held: false }));
}
