//! Queues: order, hand-over, and waiters that go away.

use std::time::Duration;

use leasehold_lock::BackendError;
use tokio::time::timeout;

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_try_does_not_overtake_waiters,
        a_dead_process_is_passed_over,
        a_dead_waiter_in_the_middle_does_not_wake_its_successor,
        a_waiter_that_goes_away_leaves_nothing_behind,
        a_cancel_at_any_moment_leaves_nothing_behind,
        a_full_queue_is_reported,
        a_burst_of_waiters_takes_no_lease_each,
    ]
}

async fn a_try_does_not_overtake_waiters(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut client = server.client().await;
    // A waiter that does not take its turn, of a process that lives on.
    client.put("/t/r/r/q/somebody-0000000000000001", "", None).await.unwrap();
    assert!(matches!(try_lock(&backend, "r").await, Err(BackendError::Locked { .. })));
    let mut wait = lock(&backend, "r");
    queued(&server, "r", 2).await;
    assert!(timeout(Duration::from_millis(300), &mut wait).await.is_err());
    client.delete("/t/r/r/q/somebody-0000000000000001", None).await.unwrap();
    soon(wait).await;
}

/// Trap: etcd 10, etcd 41, etcd 43
async fn a_dead_process_is_passed_over(version: Version) {
    let server = EtcdServer::start(version).await;
    let a = open(&server.url).await;
    let proxy = crate::proxy::Proxy::start(&server.url).await;
    let dying = open(proxy.address()).await;
    let held = try_lock(&a, "r").await.unwrap();
    let dead = lock(&dying, "r");
    queued(&server, "r", 1).await;
    let wait = lock(&a, "r");
    queued(&server, "r", 2).await;
    // As a kill -9 does: silence.
    proxy.refuse(true);
    proxy.cut();
    unlock(&a, "r", &held).await.unwrap();
    // Once the session of the dead process has ended.
    soon(wait).await;
    drop(dead);
}

/// Trap: etcd 5
async fn a_dead_waiter_in_the_middle_does_not_wake_its_successor(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let held = try_lock(&backend, "r").await.unwrap();
    let mut waits = Vec::new();
    for n in 0..3 {
        waits.push(lock(&backend, "r"));
        queued(&server, "r", n + 1).await;
    }
    let last = waits.pop().unwrap();
    for wait in waits {
        wait.abort();
    }
    queued(&server, "r", 1).await;
    assert!(!last.is_finished());
    renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
    unlock(&backend, "r", &held).await.unwrap();
    soon(last).await;
}

/// Trap: etcd 20
async fn a_waiter_that_goes_away_leaves_nothing_behind(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let held = try_lock(&backend, "r").await.unwrap();
    let mine = attempt("r", TTL);
    let wait = lock_as(&backend, mine.clone());
    queued(&server, "r", 1).await;
    wait.abort();
    undo(&backend, &mine).await.unwrap();
    assert_eq!(keys(&server, "/t/r/").await, ["/t/r/r/h"]);
    unlock(&backend, "r", &held).await.unwrap();
    try_lock(&backend, "r").await.unwrap();
}

/// Trap: etcd 7, etcd 10
async fn a_cancel_at_any_moment_leaves_nothing_behind(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for round in 0..60_u64 {
        let mine = attempt("r", TTL);
        let held = match round % 3 {
            0 => None,
            _ => Some(try_lock(&backend, "r").await.unwrap()),
        };
        let waiting = lock_as(&backend, mine.clone());
        if let Some(held) = &held
            && round % 3 == 2
        {
            unlock(&backend, "r", held).await.unwrap();
        }
        tokio::time::sleep(Duration::from_micros(round * 97)).await;
        waiting.abort();
        let _ = waiting.await;
        undo(&backend, &mine).await.unwrap();
        if let (Some(held), 1) = (&held, round % 3) {
            unlock(&backend, "r", held).await.unwrap();
        }
        assert!(keys(&server, "/t/r/").await.is_empty(), "round {round}");
    }
    for round in 0..30_u64 {
        let mine = attempt("r", TTL);
        let trying =
            timeout(Duration::from_micros(round * 53), backend.try_lock(&mine, until()));
        let _ = trying.await;
        undo(&backend, &mine).await.unwrap();
        assert!(keys(&server, "/t/r/").await.is_empty(), "try {round}");
    }
}

async fn a_full_queue_is_reported(version: Version) {
    let server = EtcdServer::start(version).await;
    let items =
        [("endpoints", server.url.as_str()), ("keyPrefixPath", "/t"), ("maxWaiters", "2")];
    let (a, b) = (open_with(&items).await, open_with(&items).await);
    try_lock(&a, "r").await.unwrap();
    let _waits = (lock(&a, "r"), lock(&a, "r"));
    queued(&server, "r", 2).await;
    assert!(matches!(a.lock(&attempt("r", TTL)).await, Err(BackendError::TooManyWaiters(_))));
    assert!(matches!(
        timeout(SOON, b.lock(&attempt("r", TTL))).await,
        Ok(Err(BackendError::TooManyWaiters(_)))
    ));
    queued(&server, "r", 2).await;
}

/// Only one of those that come together can find the resource free.
async fn a_burst_of_waiters_takes_no_lease_each(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let waits: Vec<_> = (0..200).map(|_| lock(&b, "r")).collect();
    queued(&server, "r", 200).await;
    let mut client = etcd_client::Client::connect([&server.url], None).await.unwrap();
    let leases = client.leases().await.unwrap().leases().len();
    assert!(leases <= 4, "{leases} leases: the holder's, the session's, and those tried with");
    waits.iter().for_each(tokio::task::JoinHandle::abort);
}
