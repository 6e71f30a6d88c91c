//! Queues: order, hand-over, and waiters that go away.

use std::{sync::Arc, time::Duration};

use leasehold_lock::BackendError;
use tokio::time::{Instant, timeout};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_free_resource_is_granted_at_once,
        waiters_of_two_processes_are_served_in_order,
        a_try_does_not_overtake_waiters,
        a_forced_lock_goes_to_the_first_waiter,
        a_dead_process_is_passed_over,
        a_dead_waiter_in_the_middle_does_not_wake_its_successor,
        a_waiter_that_goes_away_leaves_nothing_behind,
        a_cancel_at_any_moment_leaves_nothing_behind,
        a_full_queue_is_reported,
        a_burst_of_waiters_is_served_in_order,
        a_burst_of_waiters_takes_no_lease_each,
        a_waiting_replay_finds_its_grant,
    ]
}

async fn a_free_resource_is_granted_at_once(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grant = soon(lock(&backend, "r")).await;
    unlock(&backend, "r", &grant).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn waiters_of_two_processes_are_served_in_order(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut held = try_lock(&a, "r").await.unwrap();
    let mut waits = Vec::new();
    for n in 0..8 {
        let backend = if n % 3 == 0 { &a } else { &b };
        waits.push((lock(backend, "r"), backend));
        queued(&server, "r", n + 1).await;
    }
    for (n, (wait, backend)) in waits.into_iter().enumerate() {
        assert!(!wait.is_finished());
        unlock(&a, "r", &held).await.unwrap();
        let next = soon(wait).await;
        assert!(token(&next) > token(&held), "waiter {n}");
        held = next;
        renew(backend, "r", &held.lock_id, TTL).await.unwrap();
    }
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

async fn a_forced_lock_goes_to_the_first_waiter(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let wait = lock(&b, "r");
    queued(&server, "r", 1).await;
    force(&a, "r").await.unwrap();
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
    let died = Instant::now();
    unlock(&a, "r", &held).await.unwrap();
    let next = soon(wait).await;
    assert!(next.since.running() < died + Duration::from_millis(4_500), "passed over too late");
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

async fn a_burst_of_waiters_is_served_in_order(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = try_lock(&a, "r").await.unwrap();
    let served = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waits = Vec::new();
    for n in 0..60 {
        let backend = Arc::clone(if n % 2 == 0 { &a } else { &b });
        let served = Arc::clone(&served);
        waits.push(tokio::spawn(async move {
            let grant = backend.lock(&attempt("r", TTL)).await.unwrap();
            served.lock().unwrap().push(token(&grant));
            unlock(&backend, "r", &grant).await.unwrap();
        }));
    }
    queued(&server, "r", 60).await;
    unlock(&a, "r", &held).await.unwrap();
    for wait in waits {
        timeout(SOON, wait).await.unwrap().unwrap();
    }
    assert!(served.lock().unwrap().is_sorted());
    assert!(keys(&server, "/t/r/").await.is_empty());
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

/// Trap: etcd 23
async fn a_waiting_replay_finds_its_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = try_lock(&a, "r").await.unwrap();
    let wait = lock_as(&b, repeatable("r", "secret"));
    queued(&server, "r", 1).await;
    unlock(&a, "r", &held).await.unwrap();
    let grant = soon(wait).await;
    let again = soon(lock_as(&a, repeatable("r", "secret"))).await;
    assert_eq!((again.lock_id, again.created), (grant.lock_id, false));
}
