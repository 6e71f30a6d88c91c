//! Lost replies, lost connections, lost leases, lost members.

use std::{sync::Arc, time::Duration};

use etcd_client::CompactionOptions;
use futures_util::future::join_all;
use leasehold_lock::{BackendError, ReleaseOf};
use tokio::time::{Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdCluster, EtcdServer, Version},
    fixture::*,
    proxy::{Conduct, Flow, Proxy},
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_silent_etcd_is_reported_in_time,
        an_etcd_out_of_reach_is_reported_in_time,
        an_unknown_acquisition_is_undone,
        an_acquisition_whose_reply_was_lost_is_found_again,
        an_unlock_whose_reply_was_lost_is_completed,
        an_unlock_whose_reply_was_lost_leaves_no_lease,
        a_waiter_whose_reply_was_lost_leaves_nothing_behind,
        a_wait_outlives_a_cut_connection,
        a_wait_ends_when_etcd_stays_away,
        a_revoked_session_queues_again,
        a_deleted_entry_queues_again,
        a_deleted_holder_key_wakes_the_waiter,
        a_compaction_does_not_stop_a_waiter,
        a_revoked_lease_of_an_idle_pool_is_replaced,
        another_endpoint_takes_over,
        a_cluster_survives_the_loss_of_a_member,
        late_answers_cost_no_connection,
    ]
}

async fn a_silent_etcd_is_reported_in_time(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let grant = try_lock(&backend, "held").await.unwrap();
    proxy.swallow_replies(true);
    let start = Instant::now();
    let within = |start: Instant| start.elapsed() < Duration::from_secs(10);
    let results = tokio::join!(
        try_lock(&backend, "r"),
        renew(&backend, "held", &grant.lock_id, TTL),
        unlock(&backend, "held", &grant),
        backend.ping(until()),
        force(&backend, "r"),
    );
    assert!(within(start), "took {:?}", start.elapsed());
    let is_in_time = |error: BackendError| {
        assert!(
            matches!(error, BackendError::Unavailable(_) | BackendError::Unknown(_)),
            "{error:?}"
        );
    };
    is_in_time(results.0.unwrap_err());
    is_in_time(results.1.unwrap_err());
    is_in_time(results.2.unwrap_err());
    is_in_time(results.3.unwrap_err());
    is_in_time(results.4.unwrap_err());
}

async fn an_etcd_out_of_reach_is_reported_in_time(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    proxy.refuse(true);
    proxy.cut();
    let start = Instant::now();
    let by = start + Duration::from_secs(1);
    let tried = backend.try_lock(&attempt("r", TTL), by).await;
    assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
    assert!(start.elapsed() < Duration::from_secs(10));
    proxy.refuse(false);
    eventually("it is back", || async { try_lock(&backend, "r").await.is_ok() }).await;
}

/// Trap: etcd 1, etcd 7
async fn an_unknown_acquisition_is_undone(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    // Only the write of a record contains this.
    proxy.lose_reply_to("\"ttl\":");
    proxy.refuse(true);
    let mine = attempt("r", TTL);
    let by = Instant::now() + Duration::from_secs(3);
    let tried = backend.try_lock(&mine, by).await;
    assert!(matches!(tried, Err(BackendError::Unknown(_))), "{tried:?}");
    eventually("it was applied", async || holder(&server, "r").await.is_some()).await;
    let next = lock(&other, "r");
    proxy.refuse(false);
    soon(next).await;
    eventually("that is known", || async { undo(&backend, &mine).await.is_ok() }).await;
}

/// Trap: etcd 1
async fn an_acquisition_whose_reply_was_lost_is_found_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    // Only the write of a record contains this.
    proxy.lose_reply_to("\"ttl\":");
    proxy.refuse(true);
    let trying = {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { try_lock(&backend, "r").await })
    };
    eventually("it was applied", || async { !keys(&server, "/t/r/r/").await.is_empty() }).await;
    proxy.refuse(false);
    let grant = soon(trying).await;
    assert!(grant.created);
    let found = server.client().await.get("/t/r/r/h", None).await.unwrap();
    assert_eq!(found.kvs()[0].create_revision() as u64, token(&grant));
    unlock(&backend, "r", &grant).await.unwrap();
}

/// Trap: etcd 21, etcd 24
async fn an_unlock_whose_reply_was_lost_is_completed(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let mut mine = attempt("r", TTL);
    mine.lock_id_given = true;
    let grant = backend.try_lock(&mine, until()).await.unwrap();
    proxy.swallow_replies(true);
    let release = Arc::new(release("r", ReleaseOf::Owner(grant.lock_id.clone())));
    let by = Instant::now() + Duration::from_millis(700);
    let first = backend.unlock(&release, by).await;
    assert!(matches!(first, Err(BackendError::Unknown(_))), "{first:?}");
    eventually("it was applied", || async { keys(&server, "/t/r/r/").await.is_empty() }).await;
    // The same name again: the retry must not end it.
    let later = other.try_lock(&mine, until()).await.unwrap();
    proxy.swallow_replies(false);
    proxy.cut();
    eventually("the retry is settled", || async {
        matches!(
            backend.unlock(&release, until()).await,
            Ok(()) | Err(BackendError::NotHeld { .. })
        )
    })
    .await;
    renew(&other, "r", &later.lock_id, TTL).await.unwrap();
}

/// Found by checked histories: the lease stayed, for up to a day.
async fn an_unlock_whose_reply_was_lost_leaves_no_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock_without_reply(&server, &proxy, &backend, grant).await;
    eventually("no lease is left", || async { server.leases().await == 0 }).await;
}

/// Trap: etcd 1
async fn a_waiter_whose_reply_was_lost_leaves_nothing_behind(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let held = try_lock(&other, "r").await.unwrap();
    // A grant that is handed over shows that the backend follows the queue. Before
    // that, the next waiter could not enter without a reply.
    let first = lock(&backend, "r");
    queued(&server, "r", 1).await;
    let second = lock(&backend, "r");
    queued(&server, "r", 2).await;
    unlock(&other, "r", &held).await.unwrap();
    let held = soon(first).await;
    queued(&server, "r", 1).await;
    proxy.swallow_replies(true);
    let mine = attempt("r", TTL);
    let wait = lock_as(&backend, mine.clone());
    queued(&server, "r", 2).await;
    wait.abort();
    second.abort();
    proxy.swallow_replies(false);
    proxy.cut();
    eventually("it is undone", || async { undo(&backend, &mine).await.is_ok() }).await;
    queued(&server, "r", 0).await;
    unlock(&other, "r", &held).await.unwrap();
    try_lock(&other, "r").await.unwrap();
}

/// Trap: etcd 6, etcd 17
async fn a_wait_outlives_a_cut_connection(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let held = try_lock(&other, "r").await.unwrap();
    let wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    for _ in 0..3 {
        proxy.cut();
        sleep(Duration::from_millis(100)).await;
    }
    // Released while the watch is away.
    proxy.refuse(true);
    proxy.cut();
    unlock(&other, "r", &held).await.unwrap();
    proxy.refuse(false);
    soon(wait).await;
}

async fn a_wait_ends_when_etcd_stays_away(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let items = [("endpoints", server.url.as_str()), ("operationTimeout", "2s")];
    let backend = open_with(&items).await;
    try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    eventually("it waits", || async { keys(&server, "r/r/q/").await.len() == 1 }).await;
    server.kill();
    // One `operationTimeout` after the other.
    let two_calls = async {
        for _ in 0..2 {
            let by = Instant::now() + Duration::from_secs(2);
            backend.ping(by).await.unwrap_err();
        }
    };
    let ended = tokio::select! {
        ended = wait => ended.unwrap(),
        () = two_calls => panic!("it waits for more than operationTimeout"),
    };
    assert!(matches!(ended, Err(BackendError::Unavailable(_))), "{ended:?}");
}

/// Trap: etcd 4
async fn a_revoked_session_queues_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let held = try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    let entry = keys(&server, "/t/r/r/q/").await.remove(0);
    let mut client = server.client().await;
    let lease = client.get(entry.clone(), None).await.unwrap().kvs()[0].lease();
    client.lease_client().revoke(lease).await.unwrap();
    eventually("it queues again", || async {
        let now = keys(&server, "/t/r/r/q/").await;
        now.len() == 1 && now[0] != entry
    })
    .await;
    assert!(!wait.is_finished(), "nobody released the lock");
    unlock(&backend, "r", &held).await.unwrap();
    soon(wait).await;
}

/// Trap: etcd 4, etcd 42
async fn a_deleted_entry_queues_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let held = try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    let entry = keys(&server, "/t/r/r/q/").await.remove(0);
    server.client().await.delete(entry, None).await.unwrap();
    queued(&server, "r", 1).await;
    unlock(&backend, "r", &held).await.unwrap();
    soon(wait).await;
}

/// Trap: etcd 6, etcd 45
async fn a_deleted_holder_key_wakes_the_waiter(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let held = try_lock(&a, "r").await.unwrap();
    let wait = lock(&b, "r");
    queued(&server, "r", 1).await;
    server.client().await.delete("/t/r/r/h", None).await.unwrap();
    let next = soon(wait).await;
    assert_eq!(unlock(&a, "r", &held).await, Err(BackendError::NotHeld { held: true }));
    unlock(&b, "r", &next).await.unwrap();
}

/// Trap: etcd 6
async fn a_compaction_does_not_stop_a_waiter(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let held = try_lock(&other, "r").await.unwrap();
    let wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    proxy.refuse(true);
    proxy.cut();
    for _ in 0..20 {
        let grant = try_lock(&other, "elsewhere").await.unwrap();
        unlock(&other, "elsewhere", &grant).await.unwrap();
    }
    let revision = server.revision().await;
    let options = CompactionOptions::new().with_physical();
    server.client().await.compact(revision, Some(options)).await.unwrap();
    proxy.refuse(false);
    unlock(&other, "r", &held).await.unwrap();
    soon(wait).await;
}

async fn a_revoked_lease_of_an_idle_pool_is_replaced(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
    let mut client = server.client().await.lease_client();
    for lease in client.leases().await.unwrap().leases() {
        client.revoke(lease.id()).await.unwrap();
    }
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
}

async fn another_endpoint_takes_over(version: Version) {
    let server = EtcdServer::start(version).await;
    let (one, two) = (Proxy::start(&server.url).await, Proxy::start(&server.url).await);
    let dead = leasehold_testkit::ports::free_port();
    let endpoints = format!("127.0.0.1:{dead},{},{}", one.address(), two.address());
    let backend = open(&endpoints).await;
    let held = try_lock(&backend, "held").await.unwrap();
    let wait = lock(&backend, "held");
    queued(&server, "held", 1).await;
    for (down, up) in [(&one, &two), (&two, &one), (&one, &two)] {
        up.refuse(false);
        down.refuse(true);
        down.cut();
        eventually("the other takes over", || async {
            let grant = try_lock(&backend, "r").await;
            match grant {
                Ok(grant) => unlock(&backend, "r", &grant).await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }
    unlock(&backend, "held", &held).await.unwrap();
    soon(wait).await;
}

/// Trap: etcd 8
async fn a_cluster_survives_the_loss_of_a_member(version: Version) {
    let mut cluster = EtcdCluster::start(version, 3, true).await;
    let tls = cluster.tls.clone().unwrap();
    let endpoints = cluster.endpoints();
    let items = [
        ("endpoints", endpoints.as_str()),
        ("keyPrefixPath", "/t"),
        ("tlsEnable", "true"),
        ("ca", &tls.ca),
        ("cert", &tls.cert),
        ("key", &tls.key),
    ];
    let a = open_with(&items).await;
    let b = open_with(&[&items[..], &[("operationTimeout", "30s")]].concat()).await;
    let held = try_lock(&a, "r").await.unwrap();
    let wait = lock(&b, "r");
    let other = (cluster.leader().await + 1) % 3;
    queued(&cluster.members[other], "r", 1).await;
    let leader = cluster.leader().await;
    cluster.members[leader].kill();
    let give_up = Instant::now() + 3 * SOON;
    loop {
        let start = Instant::now();
        let result = renew(&a, "r", &held.lock_id, TTL).await;
        assert!(start.elapsed() < Duration::from_secs(10), "a call hung");
        match result {
            Ok(_) => break,
            Err(BackendError::Unavailable(_) | BackendError::Unknown(_)) => {}
            Err(error) => panic!("{error:?}: the lock was lost"),
        }
        assert!(Instant::now() < give_up, "the cluster never came back");
    }
    let give_up = Instant::now() + 3 * SOON;
    while !matches!(unlock(&a, "r", &held).await, Ok(()) | Err(BackendError::NotHeld { .. })) {
        assert!(Instant::now() < give_up, "the cluster never came back");
    }
    let next = granted_within(3 * SOON, wait).await;
    assert!(token(&next) > token(&held));
    cluster.members[leader].restart();
    cluster.members[leader].ready().await;
    unlock(&b, "r", &next).await.unwrap();
}

/// HTTP/2 libraries close a connection over which many answers came to requests that had been
/// given up.
async fn late_answers_cost_no_connection(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let opened = proxy.admitted();
    proxy.set(Conduct { replies: Flow::Stall, ..Conduct::default() });
    let by = Instant::now() + Duration::from_secs(1);
    let late = (0..1_200).map(|_| backend.ping(by));
    assert!(join_all(late).await.iter().all(Result::is_err));
    proxy.heal();
    backend.ping(until()).await.unwrap();
    assert_eq!(proxy.admitted(), opened, "the connection was lost");
}
