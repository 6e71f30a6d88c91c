//! A store that cannot renew, behind a sidecar that would have to renew.

use std::fs;

use leasehold_held::{Engine, EngineOptions, LockStore};
use leasehold_lock::{AcquireRequest, LockError, Mode};
use leasehold_sidecar::{
    ApiError, Hooks,
    api::alpha2::{LockCall, Locks},
    app_names::AppNames,
    identity::Identity,
    stores::{NamedStore, Stores},
};

use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use tracing_subscriber::filter::LevelFilter;

use crate::fake::{Asked, Fake, Reaction};

fn call(no_renewal: bool) -> LockCall {
    LockCall {
        store_name: "s".into(),
        resource: "r".parse().unwrap(),
        immediate: true,
        ttl: None,
        request_id: None,
        mode: Mode::Exclusive,
        max_hold: None,
        no_renewal,
        label: String::new(),
        arrived: Instant::now(),
        wait_end: None,
        deadline: None,
        streamed: false,
    }
}

async fn locks(fake: &mut Fake) -> Locks {
    let stores = Stores::default();
    let store = fake.open(&[]).await;
    let names = AppNames::new("none", "s", "app").unwrap();
    stores.insert(NamedStore::new(
        "lock.fake",
        "v1",
        names,
        LockStore::third_party("s", store),
    ));
    let (losses, _) = mpsc::channel(1);
    let engine = Engine::start(EngineOptions::default(), Hooks::default().healthy, losses);
    Locks::new(stores, engine, Identity::new("app", &"instance".parse().unwrap()))
}

/// Such a lock once counted as renewed, and was lost at the end of its TTL as unreachable.
#[tokio::test]
async fn a_store_that_cannot_renew_grants_nothing_that_would_have_to_be_renewed() {
    let mut fake = Fake::start(&[]).await;
    let locks = locks(&mut fake).await;
    for _ in 0..2 {
        fake.instruct(Reaction::Refuse(Status::unimplemented("no renewals here")));
        let refused = locks.lock(call(false)).await.unwrap_err();
        assert!(matches!(refused, ApiError::Lock(LockError::Unsupported(_))), "{refused:?}");
        assert!(matches!(fake.next().await, Asked::Renew(_)));
    }
    fake.must_be_left_alone().await;
    locks.lock(call(true)).await.unwrap();
    assert!(matches!(fake.next().await, Asked::TryLock(_)));
}

#[tokio::test]
async fn a_store_is_asked_once_whether_it_can_renew() {
    let mut fake = Fake::start(&[]).await;
    let locks = locks(&mut fake).await;
    fake.instruct(Reaction::Refuse(Status::not_found("no such lock")));
    for first in [true, false] {
        let acquired = locks.lock(call(false)).await.unwrap();
        if first {
            assert!(matches!(fake.next().await, Asked::Renew(_)));
        }
        assert!(matches!(fake.next().await, Asked::TryLock(_)));
        drop(acquired);
        assert!(matches!(fake.next().await, Asked::Unlock(_)));
    }
}

/// The log once had only leasehold's own text, which is the same for every store.
#[tokio::test]
async fn the_log_has_the_answer_of_a_store_that_cannot_renew() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(fs::File::create(&log).unwrap())
        .finish();
    // Global, because tracing caches which events have a subscriber: a
    // thread-local one would miss events that other tests have logged before.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut fake = Fake::start(&[]).await;
    let locks = locks(&mut fake).await;
    fake.instruct(Reaction::Refuse(Status::unimplemented("renewals come with version 2")));
    locks.lock(call(false)).await.unwrap_err();
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("renewals come with version 2"), "{log}");
}

#[tokio::test]
async fn a_caller_gets_the_answer_of_the_store() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unimplemented("only tries")));
    let error = store.lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap_err();
    assert!(matches!(error, LockError::Unsupported(_)), "{error:?}");
    assert!(error.to_string().ends_with("; it answers: only tries"), "{error}");
}
