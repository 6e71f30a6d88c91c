//! Lost answers and callers that go away.

use leasehold_lock::{AcquireRequest, LockError, RequestId};
use tokio::sync::oneshot;
use tonic::Status;

use crate::{
    fake::{Asked, Fake, Reaction},
    force, owned, renew, unlock,
};

/// Answers are given up after this long.
const IMPATIENT: [(&str, &str); 1] = [("operationTimeout", "300ms")];

/// Trap: pluggable 1
#[tokio::test]
async fn a_try_without_an_answer_is_unknown_and_undone() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&IMPATIENT).await;
    fake.instruct(Reaction::SayNothing);
    let error = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    let Asked::TryLock(tried) = fake.next().await else { panic!("no try") };
    assert_eq!(fake.next().await, Asked::Dropped);
    let Asked::Unlock(undone) = fake.next().await else { panic!("not undone") };
    assert_eq!((tried.lock_id, undone.force), (undone.lock_id, false));
}

#[tokio::test]
async fn an_unavailable_without_a_reason_may_have_happened() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unavailable("?")));
    let error = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    fake.next().await;
    assert!(matches!(fake.next().await, Asked::Unlock(_)));
}

/// Trap: pluggable 7
#[tokio::test]
async fn what_undoes_a_try_does_not_overtake_it() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    let (open, gate) = oneshot::channel();
    fake.instruct(Reaction::GrantAfter(gate));
    let trying =
        tokio::spawn(
            async move { store.try_lock(AcquireRequest::new("r".parse().unwrap())).await },
        );
    assert!(matches!(fake.next().await, Asked::TryLock(_)));
    trying.abort();
    fake.must_be_left_alone().await;
    open.send(()).unwrap();
    assert!(matches!(fake.next().await, Asked::Unlock(_)));
}

#[tokio::test]
async fn an_unclear_try_under_a_callers_own_lock_id_is_left_alone() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&IMPATIENT).await;
    fake.instruct(Reaction::SayNothing);
    store.try_lock(owned("mine")).await.unwrap_err();
    assert!(matches!(fake.next().await, Asked::TryLock(_)));
    assert_eq!(fake.next().await, Asked::Dropped);
    // An earlier grant may have the same ID.
    fake.must_be_left_alone().await;
}

#[tokio::test]
async fn a_grant_under_a_callers_own_lock_id_that_nobody_received_is_undone() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    drop(store.try_lock(owned("mine")).await.unwrap());
    assert!(matches!(fake.next().await, Asked::TryLock(_)));
    assert!(matches!(fake.next().await, Asked::Unlock(undone) if undone.lock_id == "mine"));
}

#[tokio::test]
async fn an_attempt_with_a_request_id_is_left_to_its_repetition() {
    let mut fake = Fake::start(&["REPLAY"]).await;
    let store = fake.open(&IMPATIENT).await;
    fake.instruct(Reaction::SayNothing);
    let request = AcquireRequest {
        request_id: RequestId::new("q").unwrap(),
        ..AcquireRequest::new("r".parse().unwrap())
    };
    store.try_lock(request).await.unwrap_err();
    let Asked::TryLock(sent) = fake.next().await else { panic!("no try") };
    assert_eq!((&*sent.request_id, &*sent.lock_id), ("q", ""));
    assert_eq!(fake.next().await, Asked::Dropped);
    fake.must_be_left_alone().await;
}

/// Trap: pluggable 21
#[tokio::test]
async fn an_unlock_of_unknown_outcome_is_not_sent_again() {
    let mut fake = Fake::start(&["FORCE_UNLOCK"]).await;
    let store = fake.open(&IMPATIENT).await;
    fake.instruct(Reaction::SayNothing);
    let error = unlock(&store, "r", "x").await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    assert!(matches!(fake.next().await, Asked::Unlock(_)));
    assert_eq!(fake.next().await, Asked::Dropped);
    fake.instruct(Reaction::Refuse(Status::unknown("?")));
    force(&store, "r").await.unwrap_err();
    assert!(matches!(fake.next().await, Asked::Unlock(sent) if sent.force));
    fake.must_be_left_alone().await;
}

#[tokio::test]
async fn a_renewal_of_unknown_outcome_is_left() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unknown("?")));
    let error = renew(&store, "r", "x").await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    assert!(matches!(fake.next().await, Asked::Renew(_)));
    fake.must_be_left_alone().await;
}
