//! What a lock costs: counted always, timed if asked for with `--ignored`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        a_cycle_is_two_raft_writes,
        a_contended_grant_is_three_raft_writes,
        idle_waiters_write_nothing,
        a_release_costs_the_same_however_many_wait,
        concurrent_cycles_share_raft_writes,
    ];
    cases.push(Case {
        name: "throughput",
        run: |version| Box::pin(throughput(version)),
        measures: true,
    });
    cases
}

async fn a_cycle_is_two_raft_writes(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let cycle = async || {
        let grant = try_lock(&backend, "r").await.unwrap();
        unlock(&backend, "r", &grant).await.unwrap();
    };
    cycle().await;
    let (raft, revision) = (server.raft_index().await, server.revision().await);
    for _ in 0..100 {
        cycle().await;
    }
    assert_eq!(server.revision().await - revision, 200);
    let writes = server.raft_index().await - raft;
    assert!((200..220).contains(&writes), "{writes} raft entries for 100 cycles");
}

async fn a_contended_grant_is_three_raft_writes(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let turns = async |backend: Shared, count: usize| {
        for _ in 0..count {
            let grant = backend.lock(&attempt("r", TTL)).await.unwrap();
            sleep(Duration::from_millis(2)).await;
            unlock(&backend, "r", &grant).await.unwrap();
        }
    };
    let both = async |count| tokio::join!(turns(a.clone(), count), turns(b.clone(), count));
    both(5).await;
    let raft = server.raft_index().await;
    both(50).await;
    let writes = server.raft_index().await - raft;
    assert!(writes <= 100 * 3 + 5, "{writes} raft entries for 100 grants");
}

async fn idle_waiters_write_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = crate::proxy::Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    try_lock(&backend, "r").await.unwrap();
    let waits: Vec<_> = (0..100).map(|_| lock(&backend, "r")).collect();
    queued(&server, "r", 100).await;
    // Leases that were just used are kept fresh for a moment.
    sleep(Duration::from_secs(3)).await;
    let (raft, bytes) = (server.raft_index().await, proxy.replied_bytes());
    sleep(Duration::from_secs(5)).await;
    let writes = server.raft_index().await - raft;
    assert!(writes <= 2, "{writes} raft entries");
    let bytes = proxy.replied_bytes() - bytes;
    assert!(bytes < 5 * 5 * 150, "{bytes} bytes were answered in 5 s");
    for wait in waits {
        wait.abort();
    }
}

async fn a_release_costs_the_same_however_many_wait(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = crate::proxy::Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let mut costs = Vec::new();
    for waiting in [20_usize, 2_000] {
        let resource = format!("r{waiting}");
        let first = attempt(&resource, 10 * TTL);
        let mut held = backend.try_lock(&first, until()).await.unwrap();
        let (served, mut next) = tokio::sync::mpsc::channel(1);
        let mut waits = Vec::new();
        // A busy machine needs a while for all of them.
        while waits.len() < waiting {
            let more = (waits.len()..waiting).take(200).map(|_| {
                let (backend, resource, served) =
                    (Arc::clone(&backend), resource.clone(), served.clone());
                tokio::spawn(async move {
                    let grant = backend.lock(&attempt(&resource, TTL)).await.unwrap();
                    let _ = served.send(grant).await;
                })
            });
            waits.extend(more);
            queued(&server, &resource, waits.len()).await;
        }
        let (raft, bytes) = (server.raft_index().await, proxy.replied_bytes());
        for _ in 0..15 {
            unlock(&backend, &resource, &held).await.unwrap();
            held = next.recv().await.unwrap();
        }
        costs.push((server.raft_index().await - raft, proxy.replied_bytes() - bytes));
        for wait in waits {
            wait.abort();
        }
    }
    let (few, many) = (costs[0], costs[1]);
    assert!(many.0 <= few.0 + 10, "raft entries: {few:?} {many:?}");
    assert!(many.1 <= 2 * few.1, "answered bytes: {few:?} {many:?}");
}

async fn concurrent_cycles_share_raft_writes(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    cycles(&backend, 32, Duration::from_millis(500)).await;
    let raft = server.raft_index().await;
    let (count, _) = cycles(&backend, 32, Duration::from_secs(1)).await;
    let writes = server.raft_index().await - raft;
    assert!(writes < count, "{writes} raft entries for {count} cycles");
}

/// Locks and unlocks with so many callers; how often, and how long each
/// acquisition took, sorted.
async fn cycles(backend: &Shared, callers: usize, time: Duration) -> (u64, Vec<Duration>) {
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (backend, stop, count) =
                (Arc::clone(backend), Arc::clone(&stop), Arc::clone(&count));
            tokio::spawn(async move {
                let resource = format!("caller-{caller}");
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let grant = try_lock(&backend, &resource).await.unwrap();
                    took.push(start.elapsed());
                    unlock(&backend, &resource, &grant).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
                took
            })
        })
        .collect();
    sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    took.sort_unstable();
    (count.load(Ordering::Relaxed), took)
}

async fn throughput(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for callers in [1, 16, 64] {
        cycles(&backend, callers, Duration::from_secs(1)).await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            let (count, took) = cycles(&backend, callers, Duration::from_secs(3)).await;
            runs.push((count / 3, took[took.len() / 2], took[took.len() * 99 / 100]));
        }
        runs.sort_unstable();
        let (rate, p50, p99) = runs[1];
        eprintln!(
            "{}: {callers} callers: {rate} cycles/s, p50 {p50:?}, p99 {p99:?}",
            version.name()
        );
    }
    for waiters in [1, 10, 100] {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..=waiters)
            .map(|_| {
                let (backend, stop) = (Arc::clone(&backend), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut served = 0_u64;
                    while !stop.load(Ordering::Relaxed) {
                        let grant = backend.lock(&attempt("hot", TTL)).await.unwrap();
                        sleep(Duration::from_millis(1)).await;
                        unlock(&backend, "hot", &grant).await.unwrap();
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        sleep(Duration::from_secs(3)).await;
        stop.store(true, Ordering::Relaxed);
        let mut served = 0;
        for task in tasks {
            served += task.await.unwrap();
        }
        eprintln!("{}: hand-over, {waiters} waiting: {} grants/s", version.name(), served / 3);
    }
}
