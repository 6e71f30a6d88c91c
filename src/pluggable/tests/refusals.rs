//! Refusals of a store, and how they are reported.

use leasehold_lock::{AcquireRequest, LockError, Mode, RequestId, Violation};
use leasehold_pluggable::socket_path;
use leasehold_proto::components::{LockMode, LockResponse};
use tokio::net::UnixListener;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{
    component,
    fake::{Asked, Fake, Reaction},
    force, owned, renew, unlock,
};

fn status(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
    let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let details = ErrorDetails::with_error_info(
        reason,
        "dapr.io",
        metadata.collect::<std::collections::HashMap<_, _>>(),
    );
    Status::with_error_details(code, "because", details)
}

#[tokio::test]
async fn init_has_the_properties_and_the_instance() {
    let mut fake = Fake::start(&[]).await;
    component(fake.socket(), &[("Key", "{v}")]).open().await.unwrap();
    let properties = [("Key".to_owned(), "{v}".to_owned())].into();
    assert_eq!(fake.next().await, Asked::Init { instance: "i".to_owned(), properties });
}

#[tokio::test]
async fn what_init_refuses_is_reported_by_its_key() {
    let mut fake = Fake::start(&[]).await;
    let mut details = ErrorDetails::with_bad_request_violation("redisHost", "is missing");
    details.set_error_info("INVALID_METADATA", "dapr.io", std::collections::HashMap::new());
    fake.instruct(Reaction::Refuse(Status::with_error_details(
        Code::InvalidArgument,
        "redisHost is missing",
        details,
    )));
    let error = component(fake.socket(), &[]).open().await.err().unwrap();
    assert_eq!(
        error,
        LockError::InvalidMetadata(vec![Violation::new("redisHost", "is missing")])
    );
    fake.next().await;
    fake.instruct(Reaction::Refuse(Status::invalid_argument("no host")));
    let error = component(fake.socket(), &[]).open().await.err().unwrap();
    assert_eq!(
        error,
        LockError::InvalidMetadata(vec![Violation::new("spec.metadata", "no host")])
    );
}

#[tokio::test]
async fn a_socket_without_a_lock_store_is_reported_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gone.sock");
    let error = component(socket.clone(), &[]).open().await.err().unwrap().to_string();
    assert!(error.contains("gone.sock") && error.contains("nothing listens"), "{error}");

    // A stale socket of a process that is gone.
    drop(UnixListener::bind(&socket).unwrap());
    let error = component(socket, &[]).open().await.err().unwrap().to_string();
    assert!(error.contains("nothing listens"), "{error}");

    let fake = Fake::start(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unimplemented("")));
    let error = component(fake.socket(), &[]).open().await.err().unwrap().to_string();
    assert!(error.contains("is not a lock store"), "{error}");
}

#[tokio::test]
async fn a_store_that_says_nothing_to_init_is_given_up() {
    let fake = Fake::start(&[]).await;
    fake.instruct(Reaction::SayNothing);
    let mut silent = component(fake.socket(), &[]);
    silent.init_timeout = std::time::Duration::from_millis(200);
    let error = silent.open().await.err().unwrap().to_string();
    assert!(error.contains("200ms"), "{error}");
}

#[tokio::test]
async fn what_is_not_declared_is_not_asked() {
    let mut fake = Fake::start(&["SOMETHING_NEW"]).await;
    let store = fake.open(&[]).await;
    assert!(store.features().is_empty());
    let replayed = AcquireRequest {
        request_id: RequestId::new("q").unwrap(),
        ..AcquireRequest::new("r".parse().unwrap())
    };
    assert!(matches!(store.try_lock(replayed).await, Err(LockError::Unsupported(_))));
    let shared =
        AcquireRequest { mode: Mode::Shared, ..AcquireRequest::new("r".parse().unwrap()) };
    assert!(matches!(store.try_lock(shared.clone()).await, Err(LockError::Unsupported(_))));
    assert!(matches!(store.lock(shared).await, Err(LockError::Unsupported(_))));
    assert!(matches!(force(&store, "r").await, Err(LockError::Unsupported(_))));
    fake.must_be_left_alone().await;
    let granted = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap();
    granted.receipt.accept();
    assert_eq!(granted.token, None, "a token that nobody gave");
}

#[tokio::test]
async fn where_it_is_declared_a_shared_request_is_passed_on() {
    let mut fake = Fake::start(&["SHARED"]).await;
    let store = fake.open(&[]).await;
    let shared =
        AcquireRequest { mode: Mode::Shared, ..AcquireRequest::new("r".parse().unwrap()) };
    store.try_lock(shared.clone()).await.unwrap().receipt.accept();
    store.lock(shared).await.unwrap().receipt.accept();
    let (tried, locked) = (fake.next().await, fake.next().await);
    let (Asked::TryLock(tried), Asked::Lock(locked)) = (tried, locked) else {
        panic!("another call")
    };
    assert_eq!((tried.mode(), locked.mode()), (LockMode::Shared, LockMode::Shared));
}

/// Invalid facts from another process are left out.
#[tokio::test]
async fn a_refused_try_shows_the_grant_that_the_store_reports() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    let id = "0".repeat(31) + "1";
    let mut shown = async |metadata: &[(&str, &str)]| {
        fake.instruct(Reaction::Refuse(status(Code::Aborted, "RESOURCE_LOCKED", metadata)));
        let refused = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await;
        fake.next().await;
        match refused.unwrap_err() {
            LockError::Locked { by } => by,
            other => panic!("{other:?}"),
        }
    };
    let since = ("since", "2026-11-22T21:40:03.120Z");
    let grant =
        shown(&[("holder", "h"), ("grantID", &id), ("mode", "shared"), since]).await.unwrap();
    assert_eq!(grant.id.map(|id| id.to_string()), Some(id.clone()));
    assert_eq!((grant.holder.unwrap().as_str(), grant.mode), ("h", Mode::Shared));
    assert_eq!(grant.since_unix_ms, Some(1_795_383_603_120));
    let odd = [("grantID", &*id), ("mode", "?"), ("since", "yesterday")];
    let grant = shown(&odd).await.unwrap();
    assert_eq!((grant.mode, grant.since_unix_ms), (Mode::Exclusive, None));
    assert_eq!(shown(&[("grantID", "x"), since]).await, None);
}

#[tokio::test]
async fn a_refused_try_is_read_by_its_reason_else_by_its_code() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    let mut bad = ErrorDetails::with_bad_request_violation("holder", "is rude");
    bad.set_error_info("INVALID_REQUEST", "dapr.io", std::collections::HashMap::new());
    let mut errors = Vec::new();
    for refusal in [
        status(Code::Aborted, "RESOURCE_LOCKED", &[("holder", "h")]),
        Status::aborted("held"),
        Status::with_error_details(Code::InvalidArgument, "", bad),
        status(Code::ResourceExhausted, "TOO_MANY_WAITERS", &[]),
        status(Code::ResourceExhausted, "TOO_MANY_HOLDERS", &[]),
        status(Code::ResourceExhausted, "OVERLOADED", &[]),
        status(Code::Unavailable, "STORE_UNAVAILABLE", &[]),
        status(Code::Unavailable, "SHUTTING_DOWN", &[]),
        status(Code::Unimplemented, "UNSUPPORTED", &[]),
        Status::permission_denied("no"),
    ] {
        fake.instruct(Reaction::Refuse(refusal));
        let error =
            store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
        assert!(matches!(fake.next().await, Asked::TryLock(_)));
        errors.push(
            format!("{error:?}")
                .chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect::<String>(),
        );
    }
    assert_eq!(
        errors,
        [
            "Locked",
            "Locked",
            "InvalidRequest",
            "TooManyWaiters",
            "TooManyHolders",
            "StoreUnavailable",
            "StoreUnavailable",
            "StoreUnavailable",
            "Unsupported",
            "StoreUnavailable",
        ]
    );
    // Certainly refused: nothing to undo.
    fake.must_be_left_alone().await;
}

#[tokio::test]
async fn what_holds_nothing_is_not_found() {
    let mut fake = Fake::start(&["FORCE_UNLOCK"]).await;
    let store = fake.open(&[]).await;
    for (refusal, held) in [
        (status(Code::NotFound, "LOCK_NOT_FOUND", &[("held", "true")]), true),
        (status(Code::NotFound, "LOCK_NOT_FOUND", &[]), false),
        (Status::not_found(""), false),
    ] {
        let expected = LockError::NotFound { held };
        fake.instruct(Reaction::Refuse(refusal.clone()));
        assert_eq!(renew(&store, "r", "x").await.unwrap_err(), expected);
        fake.instruct(Reaction::Refuse(refusal.clone()));
        assert_eq!(unlock(&store, "r", "x").await.unwrap_err(), expected);
        fake.instruct(Reaction::Refuse(refusal));
        assert_eq!(force(&store, "r").await.unwrap_err(), expected);
    }
}

#[tokio::test]
async fn a_store_without_a_waiting_lock_says_so() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unimplemented("")));
    let error = store.lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert_eq!(
        error,
        LockError::Unsupported("this store cannot wait for a lock; ask for it at once".into())
    );
}

#[tokio::test]
async fn a_store_that_forgot_the_instance_is_initialised_and_asked_again() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[("k", "v")]).await;
    for refusal in [
        status(Code::FailedPrecondition, "NOT_INITIALIZED", &[]),
        Status::failed_precondition("init first"),
    ] {
        fake.instruct(Reaction::Refuse(refusal));
        store
            .try_lock(AcquireRequest::new("r".parse().unwrap()))
            .await
            .unwrap()
            .receipt
            .accept();
        assert!(matches!(fake.next().await, Asked::TryLock(_)));
        let again = fake.next().await;
        assert!(matches!(&again, Asked::Init { properties, .. } if properties["k"] == "v"));
        assert!(matches!(fake.next().await, Asked::TryLock(_)));
    }
    fake.instruct(Reaction::Refuse(Status::failed_precondition("init first")));
    fake.instruct(Reaction::Refuse(Status::internal("cannot")));
    let error = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert!(matches!(&error, LockError::StoreUnavailable(why) if why.contains("cannot")));
}

#[tokio::test]
async fn an_answer_with_a_bad_lock_id_is_unknown_and_undone() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Grant(LockResponse {
        lock_id: "x".repeat(300),
        ..Default::default()
    }));
    let error = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    let Asked::TryLock(tried) = fake.next().await else { panic!("no try") };
    let Asked::Unlock(undone) = fake.next().await else { panic!("not undone") };
    assert_eq!(tried.lock_id, undone.lock_id);
}

#[tokio::test]
async fn a_callers_own_lock_id_is_sent() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    store.try_lock(owned("mine")).await.unwrap().receipt.accept();
    assert!(matches!(fake.next().await, Asked::TryLock(sent) if sent.lock_id == "mine"));
}

#[test]
fn a_type_that_names_no_socket_is_refused() {
    let folder = std::path::Path::new("/s");
    assert_eq!(socket_path(folder, "my-store.v2").unwrap(), folder.join("my-store.v2.sock"));
    for bad in ["", "../etc", "a/b", ".hidden", "a b", "é"] {
        assert_eq!(socket_path(folder, bad).unwrap_err().field, "spec.type", "{bad}");
    }
}
