//! Shared grants under faults, and what both modes cost.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_lock::{Attempt, BackendError, ReleaseOf, RequestId};
use tokio::time::{Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_reader_whose_reply_was_lost_is_found_again,
        an_unknown_reader_is_undone,
        a_queued_reader_whose_write_was_lost_is_granted_once,
        a_readers_unlock_whose_reply_was_lost_leaves_no_lease,
        a_force_whose_reply_was_lost_is_completed,
        a_waiting_reader_outlives_a_cut_connection,
        a_writer_whose_session_was_revoked_lets_the_readers_in,
        the_first_renewal_after_an_election_moves_a_reader,
        without_space_readers_are_renewed_and_unlocked,
        closing_leaves_no_lease_of_readers,
        an_exclusive_cycle_is_two_requests,
        a_refused_exclusive_try_is_one_request,
        a_readers_cycle_is_two_raft_writes,
        renewals_of_many_readers_write_nothing,
    ]
}

fn requested() -> Attempt {
    Attempt { request_id: RequestId::new("secret").unwrap(), ..reader("r") }
}

/// Two processes, of which the first goes through a proxy and has a lease at hand.
async fn two(server: &EtcdServer) -> (Proxy, Shared, Shared) {
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let grant = try_read(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
    (proxy, backend, other)
}

async fn applied(server: &EtcdServer, count: usize) {
    eventually("it was applied", || async { readers(server, "r").await.len() == count }).await;
}

async fn a_reader_whose_reply_was_lost_is_found_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let (proxy, backend, _) = two(&server).await;
    // Only the write of a record contains this.
    proxy.lose_reply_to("\"ttl\":");
    proxy.refuse(true);
    let trying = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { backend.try_lock(&requested(), until()).await })
    };
    applied(&server, 1).await;
    proxy.refuse(false);
    let grant = soon(trying).await;
    assert!(grant.created);
    let found = readers(&server, "r").await;
    assert_eq!(found[0].create_revision() as u64, token(&grant));
    unlock(&backend, "r", &grant).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn an_unknown_reader_is_undone(version: Version) {
    let server = EtcdServer::start(version).await;
    let (proxy, backend, other) = two(&server).await;
    let kept = try_read(&other, "r").await.unwrap();
    // Only the write of a record contains this.
    proxy.lose_reply_to("\"ttl\":");
    proxy.refuse(true);
    let mine = requested();
    let by = Instant::now() + Duration::from_secs(3);
    let tried = backend.try_lock(&mine, by).await;
    assert!(matches!(tried, Err(BackendError::Unknown(_))), "{tried:?}");
    applied(&server, 2).await;
    proxy.refuse(false);
    eventually("it is undone", || async { readers(&server, "r").await.len() == 1 }).await;
    eventually("that is known", || async { undo(&backend, &mine).await.is_ok() }).await;
    renew(&other, "r", &kept.lock_id, TTL).await.unwrap();
}

async fn a_queued_reader_whose_write_was_lost_is_granted_once(version: Version) {
    let server = EtcdServer::start(version).await;
    let (proxy, backend, other) = two(&server).await;
    let writer = try_lock(&other, "r").await.unwrap();
    let wait = lock_as(&backend, requested());
    queued(&server, "r", 1).await;
    // Only the write of a record contains this.
    proxy.hold_request("\"ttl\":");
    unlock(&other, "r", &writer).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    proxy.cut();
    let grant = soon(wait).await;
    assert_eq!(readers(&server, "r").await.len(), 1);
    queued(&server, "r", 0).await;
    unlock(&backend, "r", &grant).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn a_readers_unlock_whose_reply_was_lost_leaves_no_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let grant = backend.try_lock(&requested(), until()).await.unwrap();
    unlock_without_reply(&server, &proxy, &backend, grant).await;
    eventually("no lease is left", || async { server.leases().await == 0 }).await;
}

async fn a_force_whose_reply_was_lost_is_completed(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    read_many(&backend, "r", 300).await;
    let force = Arc::new(release("r", ReleaseOf::Anyone));
    let forced = tokio::spawn({
        let (backend, force) = (Arc::clone(&backend), Arc::clone(&force));
        async move { backend.unlock(&force, until()).await }
    });
    eventually("some were ended", || async { readers(&server, "r").await.len() < 300 }).await;
    proxy.swallow_replies(true);
    sleep(Duration::from_millis(50)).await;
    proxy.swallow_replies(false);
    proxy.cut();
    let mut ended = forced.await.unwrap();
    eventually("all are ended", async || {
        if ended.is_err() {
            ended = backend.unlock(&force, until()).await;
        }
        matches!(ended, Ok(()) | Err(BackendError::NotHeld { .. }))
    })
    .await;
    assert!(keys(&server, "/t/r/").await.is_empty());
    backend.close().await;
    eventually("no lease is left", || async { server.leases().await == 0 }).await;
}

async fn a_waiting_reader_outlives_a_cut_connection(version: Version) {
    let server = EtcdServer::start(version).await;
    let (proxy, backend, other) = two(&server).await;
    let held = try_read(&other, "r").await.unwrap();
    let writer = attempt("r", TTL);
    let writing = lock_as(&other, writer.clone());
    queued(&server, "r", 1).await;
    let wait = read(&backend, "r");
    queued(&server, "r", 2).await;
    // The writer gives up while the watch is away.
    proxy.refuse(true);
    proxy.cut();
    writing.abort();
    undo(&other, &writer).await.unwrap();
    proxy.refuse(false);
    soon(wait).await;
    renew(&other, "r", &held.lock_id, TTL).await.unwrap();
}

/// Trap: etcd 58
async fn a_writer_whose_session_was_revoked_lets_the_readers_in(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = try_read(&a, "r").await.unwrap();
    let writer = lock(&a, "r");
    queued(&server, "r", 1).await;
    let entry = keys(&server, "/t/r/r/q/").await.remove(0);
    let late = read(&b, "r");
    queued(&server, "r", 2).await;
    let mut client = server.client().await;
    let lease = client.get(entry, None).await.unwrap().kvs()[0].lease();
    client.lease_client().revoke(lease).await.unwrap();
    let late = soon(late).await;
    for grant in [held, late] {
        assert!(!writer.is_finished());
        unlock(&b, "r", &grant).await.unwrap();
    }
    soon(writer).await;
}

async fn the_first_renewal_after_an_election_moves_a_reader(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let first = backend.try_lock(&requested(), until()).await.unwrap();
    let grants = join_all((0..5).map(|_| try_read(&backend, "r"))).await;
    let grants = grants.into_iter().map(Result::unwrap).chain([first.clone()]);
    let grants: Vec<_> = grants.collect();
    let before = readers(&server, "r").await;
    let before: Vec<i64> = before.iter().map(etcd_client::KeyValue::lease).collect();
    server.kill();
    server.restart();
    server.ready().await;
    eventually("all are moved", async || {
        for grant in &grants {
            let _ = renew(&backend, "r", &grant.lock_id, TTL).await;
        }
        let now = readers(&server, "r").await;
        assert_eq!(now.len(), 6, "a grant has ended");
        now.iter().all(|pair| !before.contains(&pair.lease()))
    })
    .await;
    let again = backend.try_lock(&requested(), until()).await.unwrap();
    assert_eq!((&again.lock_id, again.token), (&first.lock_id, first.token));
    for grant in &grants {
        unlock(&backend, "r", grant).await.unwrap();
    }
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn without_space_readers_are_renewed_and_unlocked(version: Version) {
    let server = EtcdServer::start_with(version, &["--quota-backend-bytes", "1500000"]).await;
    let backend = open(&server.url).await;
    let grants = [
        try_read(&backend, "r").await.unwrap(),
        backend.try_lock(&requested(), until()).await.unwrap(),
    ];
    let mut client = server.client().await;
    while client.put("fill", vec![b'x'; 32 * 1024], None).await.is_ok() {}
    let mut why = String::new();
    eventually("tries name the cause", async || {
        match try_read(&backend, "r").await {
            Err(BackendError::Unavailable(reason)) => why = reason.to_string(),
            Ok(grant) => unlock(&backend, "r", &grant).await.unwrap(),
            Err(_) => {}
        }
        why.contains("space")
    })
    .await;
    for grant in &grants {
        renew(&backend, "r", &grant.lock_id, TTL).await.unwrap();
        unlock(&backend, "r", grant).await.unwrap();
    }
    eventually("nothing is held", || async { keys(&server, "/t/r/").await.is_empty() }).await;
}

async fn closing_leaves_no_lease_of_readers(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for _ in 0..2 {
        for grant in join_all((0..50).map(|_| try_read(&backend, "r"))).await {
            unlock(&backend, "r", &grant.unwrap()).await.unwrap();
        }
    }
    backend.close().await;
    eventually("no lease is left", || async { server.leases().await == 0 }).await;
}

/// How many requests etcd has answered.
async fn requests(server: &EtcdServer) -> f64 {
    server.metric("grpc_server_handled_total").await
}

async fn an_exclusive_cycle_is_two_requests(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let cycle = async || {
        let grant = try_lock(&backend, "r").await.unwrap();
        unlock(&backend, "r", &grant).await.unwrap();
    };
    cycle().await;
    let before = requests(&server).await;
    for _ in 0..50 {
        cycle().await;
    }
    let count = requests(&server).await - before;
    assert!((100.0..104.0).contains(&count), "{count} requests for 50 cycles");
}

async fn a_refused_exclusive_try_is_one_request(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let _ = try_lock(&b, "r").await;
    let before = requests(&server).await;
    for _ in 0..50 {
        assert!(try_lock(&b, "r").await.is_err());
    }
    let count = requests(&server).await - before;
    assert!((50.0..54.0).contains(&count), "{count} requests for 50 tries");
}

async fn a_readers_cycle_is_two_raft_writes(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let cycle = async || {
        let grant = backend.try_lock(&requested(), until()).await.unwrap();
        unlock(&backend, "r", &grant).await.unwrap();
    };
    cycle().await;
    let raft = server.raft_index().await;
    for _ in 0..50 {
        cycle().await;
    }
    let writes = server.raft_index().await - raft;
    assert!((100..112).contains(&writes), "{writes} raft entries for 50 cycles");
}

async fn renewals_of_many_readers_write_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grants = join_all((0..100).map(|_| try_read(&backend, "r"))).await;
    let raft = server.raft_index().await;
    let lock_ids = grants.iter().map(|grant| &grant.as_ref().unwrap().lock_id);
    let renewals = lock_ids.map(|lock_id| renew(&backend, "r", lock_id, TTL));
    assert!(join_all(renewals).await.iter().all(Result::is_ok));
    let writes = server.raft_index().await - raft;
    assert!(writes <= 3, "{writes} raft entries for 100 renewals");
}
