//! The Redis backend over real servers.
#![allow(
    clippy::disallowed_types,
    clippy::expect_used,
    clippy::unwrap_used,
    missing_docs,
    reason = "real servers keep real time, and a test may panic"
)]

mod cluster;
mod costs;
mod dead;
mod deaf;
mod failover;
mod grants;
mod inspection;
mod outages;
mod places;
mod port;
mod queue;
mod records;
mod releases;
mod scene;
mod sentinel;
mod shared;
mod stale;
mod straight;
mod tls;
mod vanished;
mod watching;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use leasehold_lock::{
    AcquireRequest, Clock, Granted, Holder, LockError, LockId, RenewRequest, RequestId, Store,
    UnlockRequest,
};
use leasehold_testkit::{
    proxy::Proxy,
    redis::{RedisServer, without_functions},
};

async fn open(server: &RedisServer) -> Store {
    open_with(server, &[]).await
}

async fn open_with(server: &RedisServer, more: &[(&str, &str)]) -> Store {
    try_open(&server.address(), more).await.unwrap()
}

async fn try_open(address: &str, more: &[(&str, &str)]) -> Result<Store, LockError> {
    let mut items = vec![("redisHost".to_owned(), address.to_owned())];
    items.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    leasehold_redis::KIND.open(items, Clock::system(), None).await
}

fn request(resource: &str, ttl: Duration) -> AcquireRequest {
    AcquireRequest { ttl: Some(ttl), ..AcquireRequest::new(resource.parse().unwrap()) }
}

fn unlock(granted: &Granted, resource: &str) -> UnlockRequest {
    UnlockRequest::owner(resource.parse().unwrap(), granted.lock_id.clone())
}

fn force(resource: &str) -> UnlockRequest {
    UnlockRequest::force(resource.parse().unwrap())
}

fn renewal(granted: &Granted, resource: &str, ttl: Duration) -> RenewRequest {
    RenewRequest {
        resource: resource.parse().unwrap(),
        lock_id: granted.lock_id.clone(),
        ttl: Some(ttl),
    }
}

/// Acquires and keeps.
async fn take(store: &Store, resource: &str, ttl: Duration) -> Granted {
    let granted = store.try_lock(request(resource, ttl)).await.unwrap();
    granted.receipt.accept();
    granted
}

/// Tries until the outcome is not unknown, as it may be while the loss of a connection is noticed.
/// Returns why the store is unavailable then.
async fn unavailable(store: &Store) -> std::sync::Arc<str> {
    soon(async {
        loop {
            match store.try_lock(request("r", MINUTE)).await {
                Err(LockError::StoreUnavailable(why)) => return why,
                Err(LockError::OutcomeUnknown(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    })
    .await
}

/// Waits in the background, and keeps what it gets.
fn wait(
    store: &Store,
    resource: &str,
    ttl: Duration,
) -> tokio::task::JoinHandle<Result<Granted, LockError>> {
    let (store, request) = (store.clone(), request(resource, ttl));
    tokio::spawn(async move {
        let granted = store.lock(request).await?;
        granted.receipt.accept();
        Ok(granted)
    })
}

/// Polls until `holds`, for half a minute at most.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What comes within half a minute.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("in time")
}

fn ask<T: redis::FromRedisValue>(connection: &mut redis::Connection, command: &[&str]) -> T {
    let mut request = redis::cmd(command[0]);
    request.arg(&command[1..]);
    request.query(connection).unwrap()
}

/// How many changes the server's data has had since it was last saved.
fn changes(connection: &mut redis::Connection) -> String {
    let info: String = ask(connection, &["INFO", "persistence"]);
    info.lines()
        .find(|line| line.starts_with("rdb_changes_since_last_save"))
        .unwrap()
        .to_owned()
}

/// A key that leasehold keeps beside that of the resource. Its tag hashes to the resource's slot.
fn key(kind: char, resource: &str) -> String {
    static TAGS: LazyLock<HashMap<u16, String>> = LazyLock::new(|| {
        let digits = || ('0'..='9').chain('A'..='Z').chain('a'..='z');
        let tags = digits().flat_map(|a| digits().map(move |b| (a, b)));
        let tags = tags.flat_map(|(a, b)| digits().map(move |c| format!("{a}{b}{c}")));
        let mut first = HashMap::new();
        for tag in tags {
            first.entry(slot(&tag)).or_insert(tag);
        }
        first
    });
    format!("\x01{kind}{{{}}}{resource}", TAGS[&slot(resource)])
}

/// The slot of a name without braces.
fn slot(name: &str) -> u16 {
    let bits =
        name.bytes().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1)));
    let crc = bits.fold(0_u16, |crc, bit| (crc << 1) ^ (0x1021 * ((crc >> 15) ^ bit)));
    crc % (1 << 14)
}

/// The command that runs the library.
fn call() -> &'static str {
    if without_functions() { "EVALSHA" } else { "FCALL" }
}

fn waiting(connection: &mut redis::Connection, resource: &str) -> usize {
    ask(connection, &["ZCARD", &key('q', resource)])
}

/// The places in the queue, in order.
fn places(connection: &mut redis::Connection, resource: &str) -> Vec<String> {
    ask(connection, &["ZRANGE", &key('q', resource), "0", "-1"])
}

/// Appends places of attempts that nobody makes to the queue.
fn put_places(connection: &mut redis::Connection, resource: &str, process: &str, count: usize) {
    let first = waiting(connection, resource);
    for n in first..first + count {
        let place = format!("{process}:{n:032x}:x:1:60000:00:4:0:dead");
        let ticket = (n + 1).to_string();
        let _: i64 = ask(connection, &["ZADD", &key('q', resource), &ticket, &place]);
    }
}

/// The processes that are connected, by their names in queues.
fn processes(connection: &mut redis::Connection) -> Vec<String> {
    let channels: Vec<String> = ask(connection, &["PUBSUB", "CHANNELS", "\x01n?*"]);
    channels.iter().map(|channel| channel[2..].to_owned()).collect()
}

/// Makes the exclusive grant of `r` end in so many milliseconds. The answer to a try for so short
/// a TTL may come too late on a busy machine.
fn end_in(connection: &mut redis::Connection, left_ms: u64) {
    for key in ["r", "\x01h{2Rk}r"] {
        let _: i64 = ask(connection, &["PEXPIRE", key, &left_ms.to_string()]);
    }
}

/// Waits until sessions count a notice that reaches nobody as a death.
async fn reunited() {
    tokio::time::sleep(SECOND * 5 + SECOND / 10).await;
}

/// Within what time a waiter is served though those before it are dead: few lapses of 2 s, and
/// what a busy machine adds.
async fn in_few_lapses<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SECOND * 15, future).await.expect("within 15 s")
}

/// A lapse for each of so many takes longer than few lapses do.
const MANY: usize = 20;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
