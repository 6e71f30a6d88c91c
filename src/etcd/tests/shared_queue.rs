//! Shared and exclusive waiters in one queue.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_lock::{Attempt, BackendError, Grant, LockId, RequestId};
use tokio::time::sleep;

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_hundred_waiting_readers_cost_few_raft_writes,
        a_thousand_waiting_readers_cost_at_most_twenty_raft_writes,
        a_try_is_refused_while_anybody_waits,
        a_writer_that_gives_up_admits_the_readers_behind_it,
        a_writer_of_a_dead_process_admits_the_readers_behind_it,
        a_dead_writer_alone_in_the_queue_is_passed_over,
        a_writer_waits_for_the_readers_of_all_processes,
        a_dead_processes_reader_ends_with_its_ttl,
        a_reader_waits_while_the_resource_is_full,
        waiting_repeats_of_a_shared_request_get_one_grant,
        of_two_waiters_with_a_lock_id_one_is_refused,
        a_waiting_reader_that_goes_away_leaves_nothing_behind,
    ]
}

/// How many raft writes it takes to grant to so many waiting readers of one process, once the
/// writer before them has left, and their tokens.
async fn writes_to_admit(version: Version, count: usize) -> (u64, Vec<u64>) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    // So that leases are kept.
    for grants in read_many(&backend, "r", count).await.chunks(100) {
        let unlocks = grants.iter().map(|grant| unlock(&backend, "r", grant));
        assert!(join_all(unlocks).await.iter().all(Result::is_ok));
    }
    let writer = try_lock(&backend, "r").await.unwrap();
    let waits: Vec<_> = (0..count).map(|_| read(&backend, "r")).collect();
    queued(&server, "r", count).await;
    let raft = server.raft_index().await;
    unlock(&backend, "r", &writer).await.unwrap();
    let grants = join_all(waits.into_iter().map(soon)).await;
    let writes = server.raft_index().await - raft;
    let mut tokens: Vec<_> = grants.iter().map(token).collect();
    tokens.sort_unstable();
    tokens.dedup();
    // One is the unlock.
    (writes - 1, tokens)
}

async fn a_hundred_waiting_readers_cost_few_raft_writes(version: Version) {
    let (writes, tokens) = writes_to_admit(version, 100).await;
    // A busy machine gathers fewer of them at a time.
    assert!(writes <= 10, "{writes} raft entries");
    assert!(tokens.len() <= 10, "{tokens:?}");
}

async fn a_thousand_waiting_readers_cost_at_most_twenty_raft_writes(version: Version) {
    let (writes, tokens) = writes_to_admit(version, 1_000).await;
    assert!(writes <= 20, "{writes} raft entries");
    assert!(tokens.len() <= 20, "{tokens:?}");
}

/// Trap: etcd 57
async fn a_try_is_refused_while_anybody_waits(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_read(&a, "r").await.unwrap();
    let writer = lock(&a, "r");
    queued(&server, "r", 1).await;
    for backend in [&a, &b] {
        let refused = (try_read(backend, "r").await, try_lock(backend, "r").await);
        assert!(matches!(refused.0, Err(BackendError::Locked { .. })), "{refused:?}");
        assert!(matches!(refused.1, Err(BackendError::Locked { .. })), "{refused:?}");
    }
    writer.abort();
}

/// Trap: etcd 58
async fn a_writer_that_gives_up_admits_the_readers_behind_it(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = try_read(&a, "r").await.unwrap();
    let mine = attempt("r", TTL);
    let writer = lock_as(&a, mine.clone());
    queued(&server, "r", 1).await;
    let late = [read(&a, "r"), read(&b, "r")];
    queued(&server, "r", 3).await;
    writer.abort();
    undo(&a, &mine).await.unwrap();
    // Long before the TTL of the reader that holds has ended.
    join_all(late.map(soon)).await;
    renew(&a, "r", &held.lock_id, TTL).await.unwrap();
}

/// A process that dies while its writer waits behind a reader.
async fn die_waiting(server: &EtcdServer) {
    let proxy = Proxy::start(&server.url).await;
    let dying = open(proxy.address()).await;
    let dead = lock(&dying, "r");
    queued(server, "r", 1).await;
    proxy.refuse(true);
    proxy.cut();
    drop(dead);
}

/// Trap: etcd 58
async fn a_writer_of_a_dead_process_admits_the_readers_behind_it(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    try_read(&backend, "r").await.unwrap();
    die_waiting(&server).await;
    // Long before the TTL of the reader that holds has ended.
    soon(read(&backend, "r")).await;
}

/// Trap: etcd 58
async fn a_dead_writer_alone_in_the_queue_is_passed_over(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    try_read(&backend, "r").await.unwrap();
    die_waiting(&server).await;
    eventually("a try for a reader is granted again", async || {
        try_read(&backend, "r").await.is_ok()
    })
    .await;
}

async fn a_writer_waits_for_the_readers_of_all_processes(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = [try_read(&a, "r").await.unwrap(), try_read(&b, "r").await.unwrap()];
    let writer = lock(&a, "r");
    queued(&server, "r", 1).await;
    for grant in &held {
        assert!(!writer.is_finished());
        sleep(Duration::from_millis(100)).await;
        unlock(&a, "r", grant).await.unwrap();
    }
    assert!(token(&soon(writer).await) > token(&held[1]));
}

/// Trap: etcd 59
async fn a_dead_processes_reader_ends_with_its_ttl(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let proxy = Proxy::start(&server.url).await;
    let dying = open(proxy.address()).await;
    let ttl = attempt("r", Duration::from_secs(2)).ttl;
    let mine = Attempt { ttl, ..reader("r") };
    let dead = dying.try_lock(&mine, until()).await.unwrap();
    let kept = try_read(&backend, "r").await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    let writer = lock(&backend, "r");
    queued(&server, "r", 1).await;
    unlock(&backend, "r", &kept).await.unwrap();
    let writer = soon(writer).await;
    assert!(writer.since >= dead.since + dead.ttl, "it ended before its TTL");
}

async fn a_reader_waits_while_the_resource_is_full(version: Version) {
    let server = EtcdServer::start(version).await;
    let items =
        [("endpoints", server.url.as_str()), ("keyPrefixPath", "/t"), ("maxHolders", "2")];
    let backend = open_with(&items).await;
    let held = [try_read(&backend, "r").await.unwrap(), try_read(&backend, "r").await.unwrap()];
    let waits = [read(&backend, "r"), read(&backend, "r")];
    queued(&server, "r", 2).await;
    sleep(Duration::from_millis(200)).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    unlock(&backend, "r", &held[0]).await.unwrap();
    queued(&server, "r", 1).await;
    assert_eq!(readers(&server, "r").await.len(), 2);
    unlock(&backend, "r", &held[1]).await.unwrap();
    join_all(waits.map(soon)).await;
}

async fn waiting_repeats_of_a_shared_request_get_one_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let request_id = RequestId::new("secret").unwrap();
    let repeated = || Attempt { request_id: request_id.clone(), ..reader("r") };
    let writer = try_lock(&a, "r").await.unwrap();
    let waits = [lock_as(&a, repeated()), lock_as(&b, repeated())];
    queued(&server, "r", 2).await;
    unlock(&a, "r", &writer).await.unwrap();
    let grants = join_all(waits.map(soon)).await;
    assert_eq!(grants[0].lock_id, grants[1].lock_id);
    assert_eq!(grants.iter().filter(|grant| grant.created).count(), 1);
    assert_eq!(readers(&server, "r").await.len(), 1);
    queued(&server, "r", 0).await;
}

async fn of_two_waiters_with_a_lock_id_one_is_refused(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let lock_id = LockId::new("mine").unwrap();
    let named = || Attempt { lock_id: lock_id.clone(), lock_id_given: true, ..reader("r") };
    let writer = try_lock(&a, "r").await.unwrap();
    let waits = [lock_as(&a, named()), lock_as(&b, named())];
    queued(&server, "r", 2).await;
    unlock(&a, "r", &writer).await.unwrap();
    let results = join_all(waits).await.into_iter().map(Result::unwrap);
    let (granted, refused): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    assert_eq!((granted.len(), refused.len()), (1, 1));
    assert!(matches!(refused[0], Err(BackendError::Invalid(_))), "{refused:?}");
    queued(&server, "r", 0).await;
}

async fn a_waiting_reader_that_goes_away_leaves_nothing_behind(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for round in 0..40_u64 {
        let request_id = RequestId::new("secret").unwrap();
        let mine = Attempt { request_id, ..reader("r") };
        let held: Option<Grant> = match round % 3 {
            0 => None,
            _ => Some(try_lock(&backend, "r").await.unwrap()),
        };
        let waiting = lock_as(&backend, mine.clone());
        if let (Some(held), 2) = (&held, round % 3) {
            unlock(&backend, "r", held).await.unwrap();
        }
        sleep(Duration::from_micros(round * 131)).await;
        waiting.abort();
        let _ = waiting.await;
        undo(&backend, &mine).await.unwrap();
        if let (Some(held), 1) = (&held, round % 3) {
            unlock(&backend, "r", held).await.unwrap();
        }
        assert!(keys(&server, "/t/r/").await.is_empty(), "round {round}");
    }
}
