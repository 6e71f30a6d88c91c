//! Shared locks.

mod built_in;
mod costs;
mod grants;
mod limits;
mod lost;
mod queue;
mod silent;

use leasehold_lock::Mode;

use super::*;

fn shared(resource: &str, ttl: Duration) -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..request(resource, ttl) }
}

/// Acquires a shared grant and keeps it.
async fn read(store: &Store, resource: &str, ttl: Duration) -> Granted {
    let granted = store.try_lock(shared(resource, ttl)).await.unwrap();
    granted.receipt.accept();
    granted
}

/// Waits in the background for a shared grant, and keeps it.
fn wait_to_read(
    store: &Store,
    resource: &str,
) -> tokio::task::JoinHandle<Result<Granted, LockError>> {
    let (store, request) = (store.clone(), shared(resource, MINUTE));
    tokio::spawn(async move {
        let granted = store.lock(request).await?;
        granted.receipt.accept();
        Ok(granted)
    })
}

async fn readers(store: &Store, resource: &str, count: usize) -> Vec<Granted> {
    let mut readers = Vec::new();
    for _ in 0..count {
        readers.push(read(store, resource, MINUTE).await);
    }
    readers
}

async fn unlock_all(store: &Store, resource: &str, granted: &[Granted]) {
    for granted in granted {
        store.unlock(unlock(granted, resource)).await.unwrap();
    }
}

/// How many hand-overs of shared grants are not confirmed.
fn called(connection: &mut redis::Connection, resource: &str) -> usize {
    ask(connection, &["ZCARD", &key('p', resource)])
}

/// When the resource's key ends, and when the last of its shared grants does.
fn ends(connection: &mut redis::Connection) -> (i64, i64) {
    let last: Vec<String> =
        ask(connection, &["ZRANGE", "\x01e{2Rk}r", "-1", "-1", "WITHSCORES"]);
    let key = ask(connection, &["PEXPIRETIME", "r"]);
    (key, last.get(1).map_or(-2, |end| end.parse().unwrap()))
}

/// Makes a shared grant of `r` end in so many milliseconds: see `end_in`.
pub(super) fn end_reader_in(
    connection: &mut redis::Connection,
    granted: &Granted,
    left_ms: i64,
) {
    let (seconds, micros): (i64, i64) = ask(connection, &["TIME"]);
    let end = (seconds * 1000 + micros / 1000 + left_ms).to_string();
    let lock_id = granted.lock_id.as_str();
    let _: i64 = ask(connection, &["ZADD", "\x01e{2Rk}r", "XX", &end, lock_id]);
}

/// Whether the TTL of a shared grant of `r` is over. Its entry must still be there.
fn is_over(connection: &mut redis::Connection, granted: &Granted) -> bool {
    let end: String = ask(connection, &["ZSCORE", "\x01e{2Rk}r", granted.lock_id.as_str()]);
    let (seconds, micros): (i64, i64) = ask(connection, &["TIME"]);
    end.parse::<i64>().unwrap() < seconds * 1000 + micros / 1000
}

fn is_locked<T>(result: &Result<T, LockError>) -> bool {
    matches!(result, Err(LockError::Locked { .. }))
}

/// Appends a place of a writer or a reader whose process is `process` to the queue.
fn put_place(connection: &mut redis::Connection, process: &str, mode: char) {
    let number = waiting(connection, "r") + 1;
    let place = format!("{process}:{number:032x}:{mode}:1:60000:00:4:0:dead");
    let _: i64 = ask(connection, &["ZADD", "\x01q{2Rk}r", &number.to_string(), &place]);
}
