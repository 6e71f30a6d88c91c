//! What the cases share: backends, attempts, and waiting for something to hold.

use std::{sync::Arc, time::Duration};

use etcd_client::KeyValue;
use futures_util::future::join_all;
use leasehold_lock::{
    Attempt, Backend, BackendError, Clock, Context, Grant, LockId, Mode, OpenError, Release,
    ReleaseOf, Renewal, Renewed, RequestId, ResourceId, Settings, Ttl, properties::Properties,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{etcd::EtcdServer, proxy::Proxy};

/// How long anything may take that is to happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) type Shared = Arc<dyn Backend>;

/// Opens a backend with these properties.
pub(crate) async fn try_open(items: &[(&str, &str)]) -> Result<Shared, OpenError> {
    let mut properties =
        Properties::new(items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let settings = properties.settings();
    let connect = (leasehold_etcd::KIND.read)(&mut properties);
    properties.finish().unwrap();
    connect(Context::new(settings, Clock::system())).await
}

/// Opens a backend with these properties. On a busy machine etcd may need more than
/// one attempt to answer in time.
pub(crate) async fn open_with(items: &[(&str, &str)]) -> Shared {
    let give_up = Instant::now() + SOON;
    loop {
        match try_open(items).await {
            Ok(backend) => return backend,
            Err(OpenError::Unavailable(why)) => {
                assert!(Instant::now() < give_up, "{why}");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Opens a backend on these endpoints.
pub(crate) async fn open(endpoints: &str) -> Shared {
    open_with(&[("endpoints", endpoints), ("keyPrefixPath", "/t")]).await
}

/// An attempt on a resource.
pub(crate) fn attempt(resource: &str, ttl: Duration) -> Attempt {
    Attempt::new(
        ResourceId::new(resource).unwrap(),
        Ttl::new(ttl, Settings::default().ttl_max).unwrap(),
    )
}

/// The same as a request that may be repeated.
pub(crate) fn repeatable(resource: &str, request: &str) -> Attempt {
    Attempt { request_id: RequestId::new(request).unwrap(), ..attempt(resource, TTL) }
}

/// An attempt for a shared grant.
pub(crate) fn reader(resource: &str) -> Attempt {
    Attempt { mode: Mode::Shared, ..attempt(resource, TTL) }
}

/// The TTL of most attempts.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// When an operation must have ended.
pub(crate) fn until() -> Instant {
    Instant::now() + Settings::default().operation_timeout
}

pub(crate) async fn try_lock(backend: &Shared, resource: &str) -> Result<Grant, BackendError> {
    backend.try_lock(&attempt(resource, TTL), until()).await
}

pub(crate) async fn try_read(backend: &Shared, resource: &str) -> Result<Grant, BackendError> {
    backend.try_lock(&reader(resource), until()).await
}

/// So many shared grants of a resource. Each needs a lease, of which a busy machine does not
/// grant more within a try's time than are asked for here at once.
pub(crate) async fn read_many(backend: &Shared, resource: &str, count: usize) -> Vec<Grant> {
    let mut grants = Vec::with_capacity(count);
    while grants.len() < count {
        let tries = (grants.len()..count).take(100).map(|_| try_read(backend, resource));
        grants.extend(join_all(tries).await.into_iter().map(Result::unwrap));
    }
    grants
}

/// Waits in a task of its own.
pub(crate) fn lock(
    backend: &Shared,
    resource: &str,
) -> JoinHandle<Result<Grant, BackendError>> {
    lock_as(backend, attempt(resource, TTL))
}

/// The same for a shared grant.
pub(crate) fn read(
    backend: &Shared,
    resource: &str,
) -> JoinHandle<Result<Grant, BackendError>> {
    lock_as(backend, reader(resource))
}

/// The same for an attempt.
pub(crate) fn lock_as(
    backend: &Shared,
    attempt: Attempt,
) -> JoinHandle<Result<Grant, BackendError>> {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { backend.lock(&attempt).await })
}

pub(crate) fn release(resource: &str, of: ReleaseOf) -> Release {
    Release::new(ResourceId::new(resource).unwrap(), of)
}

pub(crate) async fn unlock(
    backend: &Shared,
    resource: &str,
    grant: &Grant,
) -> Result<(), BackendError> {
    let release = release(resource, ReleaseOf::Owner(grant.lock_id.clone()));
    backend.unlock(&release, until()).await
}

/// Unlocks `r` through a proxy that loses the reply, and returns once the backend is certain
/// that it is unlocked.
pub(crate) async fn unlock_without_reply(
    server: &EtcdServer,
    proxy: &Proxy,
    backend: &Shared,
    grant: Grant,
) {
    proxy.swallow_replies(true);
    let unlocked = tokio::spawn({
        let backend = Arc::clone(backend);
        async move { unlock(&backend, "r", &grant).await }
    });
    eventually("it was applied", || async { keys(server, "/t/r/r/").await.is_empty() }).await;
    proxy.swallow_replies(false);
    proxy.cut();
    unlocked.await.unwrap().unwrap();
}

pub(crate) async fn force(backend: &Shared, resource: &str) -> Result<(), BackendError> {
    backend.unlock(&release(resource, ReleaseOf::Anyone), until()).await
}

pub(crate) async fn undo(backend: &Shared, attempt: &Attempt) -> Result<(), BackendError> {
    let of = ReleaseOf::Attempt(Arc::new(attempt.clone()));
    backend.unlock(&release(attempt.resource.as_str(), of), until()).await
}

pub(crate) async fn renew(
    backend: &Shared,
    resource: &str,
    lock_id: &LockId,
    ttl: Duration,
) -> Result<Renewed, BackendError> {
    backend.renew(&renewal(resource, lock_id, ttl), until()).await
}

pub(crate) fn renewal(resource: &str, lock_id: &LockId, ttl: Duration) -> Renewal {
    Renewal {
        resource: ResourceId::new(resource).unwrap(),
        lock_id: lock_id.clone(),
        ttl: Ttl::new(ttl, Settings::default().ttl_max).unwrap(),
    }
}

pub(crate) fn token(grant: &Grant) -> u64 {
    grant.token.unwrap().get()
}

/// What a waiter gets, which must be soon.
pub(crate) async fn soon(wait: JoinHandle<Result<Grant, BackendError>>) -> Grant {
    granted_within(SOON, wait).await
}

/// The same within this time.
pub(crate) async fn granted_within(
    time: Duration,
    wait: JoinHandle<Result<Grant, BackendError>>,
) -> Grant {
    tokio::time::timeout(time, wait).await.expect("still waiting").unwrap().unwrap()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + SOON;
    while !holds().await {
        assert!(Instant::now() < give_up, "never came true: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The keys that begin with a prefix. An election under way may refuse a read.
pub(crate) async fn keys(server: &EtcdServer, prefix: &str) -> Vec<String> {
    let options = etcd_client::GetOptions::new().with_prefix().with_keys_only();
    let give_up = Instant::now() + SOON;
    let found = loop {
        match server.client().await.get(prefix, Some(options.clone())).await {
            Ok(found) => break found,
            Err(error) => assert!(Instant::now() < give_up, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    };
    found.kvs().iter().map(|pair| pair.key_str().unwrap().to_owned()).collect()
}

/// Waits until so many stand in the resource's queue.
pub(crate) async fn queued(server: &EtcdServer, resource: &str, count: usize) {
    let prefix = format!("/t/r/{resource}/q/");
    eventually(&format!("{count} wait for {resource}"), || async {
        keys(server, &prefix).await.len() == count
    })
    .await;
}

/// The holder's key of a resource.
pub(crate) async fn holder(server: &EtcdServer, resource: &str) -> Option<KeyValue> {
    let found = server.client().await.get(format!("/t/r/{resource}/h"), None).await.unwrap();
    found.kvs().first().cloned()
}

/// The keys of the shared grants of a resource.
pub(crate) async fn readers(server: &EtcdServer, resource: &str) -> Vec<KeyValue> {
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = server.client().await.get(format!("/t/r/{resource}/h/"), Some(options)).await;
    found.unwrap().kvs().to_vec()
}

/// Acquires many resources at once.
pub(crate) async fn lock_all(backend: &Shared, names: &[String], ttl: Duration) -> Vec<Grant> {
    let tries = names.iter().map(|name| async move {
        backend.try_lock(&attempt(name, ttl), until()).await.unwrap()
    });
    join_all(tries).await
}

pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("r{n}")).collect()
}
