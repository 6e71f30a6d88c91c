//! Our own component, over memory, as a pluggable store.

use std::{path::Path, time::Duration};

use leasehold_component::SocketMode;
use leasehold_lock::{
    AcquireRequest, Feature, Holder, LockError, RequestId, Store, inspect::PageRequest,
};
use leasehold_pluggable::socket_path;

use leasehold::command::{
    ServeOptions, StoreOption,
    serve::{self, Serving},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{component, force, renew, unlock};

pub(crate) async fn serve(folder: &Path) -> Serving {
    let kind = leasehold_memory::KIND;
    let options = ServeOptions {
        socket_folder: Some(folder.to_owned()),
        resources_path: Vec::new(),
        store: vec![StoreOption { kind, socket: "other".to_owned() }],
        socket_mode: SocketMode::default(),
        metrics: Default::default(),
    };
    serve::start(&options).await.unwrap()
}

pub(crate) async fn open(folder: &Path) -> Store {
    let socket = socket_path(folder, "other").unwrap();
    component(socket, &[("ttl", "10s")]).open().await.unwrap()
}

pub(crate) fn request() -> AcquireRequest {
    AcquireRequest {
        holder: Holder::new("app").unwrap(),
        ..AcquireRequest::new("r".parse().unwrap())
    }
}

#[tokio::test]
async fn every_verb_works_through_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    assert!(store.features().contains(&Feature::Fencing));
    store.ping().await.unwrap();

    let first = store.try_lock(request()).await.unwrap();
    first.receipt.accept();
    assert_eq!(first.ttl, Duration::from_secs(10));
    let locked = store.try_lock(request()).await.unwrap_err();
    assert!(matches!(&locked, LockError::Locked { by: Some(grant) }
            if grant.id == first.id && grant.holder.as_ref().unwrap().as_str() == "app"));
    let renewed = renew(&store, "r", first.lock_id.as_str()).await;
    assert_eq!(renewed.unwrap(), Duration::from_secs(20));
    assert_eq!(unlock(&store, "r", "other").await, Err(LockError::NotFound { held: true }));
    unlock(&store, "r", first.lock_id.as_str()).await.unwrap();
    assert_eq!(
        unlock(&store, "r", first.lock_id.as_str()).await,
        Err(LockError::NotFound { held: false })
    );

    let second = store.try_lock(request()).await.unwrap();
    second.receipt.accept();
    assert!(second.token.unwrap() > first.token.unwrap());
    force(&store, "r").await.unwrap();
    assert_eq!(
        renew(&store, "r", second.lock_id.as_str()).await,
        Err(LockError::NotFound { held: false })
    );
}

#[tokio::test]
async fn a_wait_is_handed_the_lock_and_counts_its_ttl_from_then() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    let held = store.try_lock(request()).await.unwrap();
    held.receipt.accept();
    let asked = request();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.lock(asked).await }
    });
    let queued = async {
        let resource = "r".parse().unwrap();
        while store.get(&resource, &PageRequest::first(1)).await.unwrap().waiters == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(8), queued).await.expect("it does not wait");
    let wait = Duration::from_millis(300);
    sleep(wait).await;
    unlock(&store, "r", held.lock_id.as_str()).await.unwrap();
    let granted = timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap().unwrap();
    assert!(granted.waited >= wait, "{:?}", granted.waited);
    assert!(granted.token.unwrap() > held.token.unwrap());
    granted.receipt.accept();
}

#[tokio::test]
async fn a_repeated_request_finds_its_own_grant() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    let again =
        || AcquireRequest { request_id: RequestId::new("secret").unwrap(), ..request() };
    let first = store.try_lock(again()).await.unwrap();
    let second = store.try_lock(again()).await.unwrap();
    assert_eq!((&first.lock_id, first.token), (&second.lock_id, second.token));
}

#[tokio::test]
async fn an_unreceived_grant_is_released_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    drop(store.try_lock(request()).await.unwrap());
    let free = async {
        while store.try_lock(request()).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(8), free).await.expect("held until its TTL");
}

#[tokio::test]
async fn a_store_that_was_restarted_is_initialised_again() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    store.try_lock(request()).await.unwrap().receipt.accept();
    serving.drain().await;
    let down = store.try_lock(request()).await.unwrap_err();
    assert!(matches!(down, LockError::StoreUnavailable(_)), "{down:?}");
    let _serving = serve(folder.path()).await;
    let back = async {
        loop {
            match store.try_lock(request()).await {
                Ok(granted) => return granted,
                Err(LockError::StoreUnavailable(_)) => sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    let granted = timeout(Duration::from_secs(5), back).await.unwrap();
    assert_eq!(granted.ttl, Duration::from_secs(10), "the properties were not sent again");
    granted.receipt.accept();
}

#[tokio::test]
async fn a_wait_outlives_an_outage_and_is_granted_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    store.try_lock(request()).await.unwrap().receipt.accept();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.lock(request()).await }
    });
    serving.drain().await;
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    let _serving = serve(folder.path()).await;
    let granted = timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
    granted.receipt.accept();
}

#[tokio::test]
async fn a_wait_ends_with_an_outage_longer_than_the_operation_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let serving = serve(folder.path()).await;
    let socket = socket_path(folder.path(), "other").unwrap();
    let store = component(socket, &[("operationTimeout", "500ms")]).open().await.unwrap();
    serving.drain().await;
    let started = Instant::now();
    let error = store.lock(request()).await.unwrap_err();
    assert!(matches!(error, LockError::StoreUnavailable(_)), "{error:?}");
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
    assert!(waited < Duration::from_secs(5), "{waited:?}");
}
