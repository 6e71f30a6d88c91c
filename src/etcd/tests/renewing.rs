//! Renewals, and the leases of grants: after a renewal by another process, after a
//! restored snapshot, without space, and many at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use leasehold_lock::{BackendError, Grant};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Case, cases,
    etcd::{EtcdCluster, EtcdServer, Version},
    fixture::*,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        a_lease_that_another_process_replaced_is_not_reused,
        an_unlock_after_a_restore_spares_the_grant_at_the_same_revision,
        an_undo_after_a_restore_spares_the_grant_at_the_same_revision,
        a_renewal_after_a_reconnect_writes_nothing,
        a_renewal_survives_a_reconnect_when_the_quota_is_exceeded,
        a_grant_of_another_process_is_renewed_when_the_quota_is_exceeded,
        thousands_of_renewals_at_once_over_a_follower_all_succeed,
        an_outage_of_nearly_half_the_ttl_loses_no_grant,
        a_move_that_another_replaced_leaves_no_lease,
    ];
    cases.extend([
        Case {
            name: "renewals_on_one_member",
            run: |version| Box::pin(renewals(version, 1, 0)),
            measures: true,
        },
        Case {
            name: "renewals_over_a_follower",
            run: |version| Box::pin(renewals(version, 3, 0)),
            measures: true,
        },
        Case {
            name: "renewals_around_an_outage",
            run: |version| Box::pin(renewals(version, 1, 15)),
            measures: true,
        },
    ]);
    cases
}

/// Another process renews with another TTL, which moves the key to a
/// lease of its own. The first one's lease runs out meanwhile, though that
/// process renews the grant too.
/// Trap: etcd 32
async fn a_lease_that_another_process_replaced_is_not_reused(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let (short, long) = (Duration::from_secs(3), Duration::from_secs(5));
    let grant = a.try_lock(&attempt("r", short), until()).await.unwrap();
    renew(&b, "r", &grant.lock_id, long).await.unwrap();
    sleep(Duration::from_millis(2_500)).await;
    renew(&a, "r", &grant.lock_id, long).await.unwrap();
    unlock(&a, "r", &grant).await.unwrap();
    let next = a.try_lock(&attempt("x", short), until()).await.unwrap();
    let ends = (next.since + next.ttl).running();
    sleep_until(ends - Duration::from_millis(100)).await;
    let held = holder(&server, "x").await;
    if Instant::now() < ends {
        assert!(held.is_some(), "the grant ended before its TTL");
    }
}

/// A process holds a grant that was made after a backup; after the restore
/// another process gets the same revision for a grant of its own.
async fn same_revision_after_a_restore(
    version: Version,
) -> (EtcdServer, Shared, leasehold_lock::Attempt, Grant, Shared, Grant) {
    let mut server = EtcdServer::start(version).await;
    let a = open(&server.url).await;
    server.back_up();
    server.restart();
    server.ready().await;
    let first = attempt("r", TTL);
    let mut before = None;
    eventually("the first grant", async || {
        before = a.try_lock(&first, until()).await.ok();
        before.is_some()
    })
    .await;
    let before = before.unwrap();
    server.restore();
    server.restart();
    server.ready().await;
    let b = open(&server.url).await;
    let after = try_lock(&b, "r").await.unwrap();
    assert_eq!(token(&after), token(&before), "not the case that this test is for");
    (server, a, first, before, b, after)
}

/// Trap: etcd 34
async fn an_unlock_after_a_restore_spares_the_grant_at_the_same_revision(version: Version) {
    let (server, a, _, before, b, after) = same_revision_after_a_restore(version).await;
    let mut answer = Ok(());
    eventually("the unlock is answered", async || {
        answer = unlock(&a, "r", &before).await;
        !matches!(answer, Err(BackendError::Unavailable(_) | BackendError::Unknown(_)))
    })
    .await;
    assert_eq!(answer, Err(BackendError::NotHeld { held: true }));
    assert!(holder(&server, "r").await.is_some());
    unlock(&b, "r", &after).await.unwrap();
}

/// The same for an attempt that is undone.
/// Trap: etcd 34
async fn an_undo_after_a_restore_spares_the_grant_at_the_same_revision(version: Version) {
    let (server, a, first, _, b, after) = same_revision_after_a_restore(version).await;
    eventually("it is undone", async || undo(&a, &first).await.is_ok()).await;
    assert!(holder(&server, "r").await.is_some(), "another process's grant was ended");
    unlock(&b, "r", &after).await.unwrap();
}

/// Nothing is written for a renewal because the connection is another.
/// Trap: etcd 35
async fn a_renewal_after_a_reconnect_writes_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let names = names(50);
    let grants = lock_all(&backend, &names, TTL).await;
    let raft = server.raft_index().await;
    proxy.cut();
    let renewals = names.iter().zip(&grants).map(|(name, grant)| {
        let backend = &backend;
        async move {
            eventually("it is renewed", async || {
                renew(backend, name, &grant.lock_id, TTL).await.is_ok()
            })
            .await;
        }
    });
    join_all(renewals).await;
    let writes = server.raft_index().await - raft;
    assert!(writes <= 3, "{writes} raft entries for 50 renewals");
}

/// A server whose quota is about to be exceeded.
async fn small(version: Version) -> EtcdServer {
    EtcdServer::start_with(version, &["--quota-backend-bytes", "4194304"]).await
}

/// Writes until etcd takes no more.
async fn fill(server: &EtcdServer) {
    let mut client = server.client().await;
    for n in 0..100 {
        let filled = client.put(format!("filler{n}"), vec![b'x'; 500_000], None).await;
        if filled.is_err() {
            return;
        }
    }
    panic!("the quota was never exceeded");
}

/// Etcd still keeps leases alive, and takes no writes.
/// Trap: etcd 35
async fn a_renewal_survives_a_reconnect_when_the_quota_is_exceeded(version: Version) {
    let server = small(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    fill(&server).await;
    renew(&backend, "r", &grant.lock_id, TTL).await.unwrap();
    proxy.cut();
    eventually("it is renewed", async || {
        renew(&backend, "r", &grant.lock_id, TTL).await.is_ok()
    })
    .await;
    unlock(&backend, "r", &grant).await.unwrap();
}

/// A process that did not make the grant renews it all the same.
/// Trap: etcd 35
async fn a_grant_of_another_process_is_renewed_when_the_quota_is_exceeded(version: Version) {
    let server = small(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = try_lock(&a, "r").await.unwrap();
    fill(&server).await;
    eventually("it is renewed", async || renew(&b, "r", &grant.lock_id, TTL).await.is_ok())
        .await;
    unlock(&b, "r", &grant).await.unwrap();
}

/// Each of these takes a round trip between two members.
/// Trap: etcd 35
async fn thousands_of_renewals_at_once_over_a_follower_all_succeed(version: Version) {
    let cluster = EtcdCluster::start(version, 3, false).await;
    let follower = (cluster.leader().await + 1) % 3;
    let proxy = Proxy::start(&cluster.members[follower].url).await;
    let backend = open(proxy.address()).await;
    let names = names(2_000);
    let mut grants = Vec::new();
    for some in names.chunks(50) {
        grants.extend(lock_all(&backend, some, 10 * TTL).await);
    }
    let connections = proxy.admitted();
    let renewals = names.iter().zip(&grants).map(|(name, grant)| {
        let renewal = leasehold_lock::Renewal {
            resource: leasehold_lock::ResourceId::new(name).unwrap(),
            lock_id: grant.lock_id.clone(),
            ttl: attempt(name, TTL).ttl,
        };
        let backend = &backend;
        async move { backend.renew(&renewal, Instant::now() + 2 * SOON).await }
    });
    let failed = join_all(renewals).await.into_iter().filter(Result::is_err).count();
    assert_eq!(failed, 0, "of {} renewals", names.len());
    assert_eq!(proxy.admitted(), connections, "the connection was given up");
}

/// Grants that are held by an app that renews them each third of the TTL, and
/// once more soon if that fails.
struct Holders {
    held: AtomicU64,
    renewed: AtomicU64,
    failed: AtomicU64,
    lost: AtomicU64,
    /// The shortest time, in ms, for which a grant still lived when it was renewed.
    left_ms: AtomicU64,
    acquiring: Semaphore,
}

impl Holders {
    /// Acquires a resource, and renews it until `end`.
    async fn hold(self: Arc<Self>, backend: Shared, name: String, ttl: Duration, end: Instant) {
        let grant = loop {
            let _place = self.acquiring.acquire().await.unwrap();
            if let Ok(grant) = backend.try_lock(&attempt(&name, ttl), until()).await {
                break grant;
            }
        };
        self.held.fetch_add(1, Ordering::Relaxed);
        let mut ends = (grant.since + grant.ttl).running();
        let mut next = (grant.since + ttl / 3).running();
        loop {
            sleep_until(next).await;
            if Instant::now() >= end {
                return;
            }
            match renew(&backend, &name, &grant.lock_id, ttl).await {
                Ok(renewed) => {
                    let left = ends.saturating_duration_since(Instant::now());
                    self.left_ms.fetch_min(left.as_millis() as u64, Ordering::Relaxed);
                    self.renewed.fetch_add(1, Ordering::Relaxed);
                    ends = (renewed.since + renewed.ttl).running();
                    next = (renewed.since + ttl / 3).running();
                }
                Err(error) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    if Instant::now() >= ends || matches!(error, BackendError::NotHeld { .. }) {
                        self.lost.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    next = Instant::now() + ttl / 60;
                }
            }
        }
    }

    fn start(
        backend: &Shared,
        names: Vec<String>,
        ttl: Duration,
        end: Instant,
    ) -> (Arc<Self>, Vec<tokio::task::JoinHandle<()>>) {
        let holders = Arc::new(Self {
            held: AtomicU64::new(0),
            renewed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            left_ms: AtomicU64::new(u64::MAX),
            acquiring: Semaphore::new(256),
        });
        let hold =
            |name| tokio::spawn(Arc::clone(&holders).hold(backend.clone(), name, ttl, end));
        let tasks = names.into_iter().map(hold).collect();
        (holders, tasks)
    }

    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Trap: etcd 35
async fn an_outage_of_nearly_half_the_ttl_loses_no_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    // What was renewed a third of the TTL before the outage has three seconds left.
    let (ttl, start) = (Duration::from_secs(15), Instant::now());
    let end = start + Duration::from_secs(25);
    let (holders, tasks) = Holders::start(&backend, names(1_000), ttl, end);
    sleep_until(start + Duration::from_secs(8)).await;
    let held = holders.held.load(Ordering::Relaxed);
    proxy.swallow_replies(true);
    sleep_until(start + Duration::from_secs(12)).await;
    proxy.refuse(true);
    proxy.cut();
    proxy.swallow_replies(false);
    sleep_until(start + Duration::from_secs(15)).await;
    proxy.refuse(false);
    let before = holders.renewed.load(Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(holders.lost(), 0, "of 1,000 grants");
    let renewed = holders.renewed.load(Ordering::Relaxed) - before;
    assert!(held >= 500 && renewed >= held, "{renewed} of {held} renewed after the outage");
}

// The lease of the first move stayed until its TTL ended, which may be a day.
/// Trap: etcd 37
async fn a_move_that_another_replaced_leaves_no_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let held = try_lock(&backend, "r").await.unwrap();
    // Only the write of a record contains this.
    proxy.hold_request("\"ttl\":");
    renew(&backend, "r", &held.lock_id, 3 * TTL).await.unwrap();
    proxy.deliver().await;
    unlock(&backend, "r", &held).await.unwrap();
    backend.close().await;
    eventually("no lease is left", async || server.leases().await == 0).await;
}

/// How many grants of 30 s one process can hold: as many as `LEASEHOLD_LOCKS` says,
/// renewed for 90 s each third of their TTL, with an outage of `outage_s` in between.
async fn renewals(version: Version, members: usize, outage_s: u64) {
    let count =
        std::env::var("LEASEHOLD_LOCKS").map_or(100_000, |count| count.parse().unwrap());
    let cluster = EtcdCluster::start(version, members, false).await;
    let used = (cluster.leader().await + members - 1) % members;
    let proxy = Proxy::start(&cluster.members[used].url).await;
    let address = if outage_s > 0 {
        proxy.address().to_owned()
    } else {
        cluster.members[used].url.clone()
    };
    let backend = open(&address).await;
    let start = Instant::now();
    let end = start + Duration::from_secs(120);
    let (holders, tasks) = Holders::start(&backend, names(count), TTL, end);
    let mut before = 0;
    for second in 1..=12 {
        sleep_until(start + Duration::from_secs(second * 10)).await;
        let renewed = holders.renewed.load(Ordering::Relaxed);
        eprintln!(
            "{}: {members} members, {count} locks, {} s: {} held, {}/s renewed, {} errors, {} lost, \
             {} ms left at least",
            version.name(),
            second * 10,
            holders.held.load(Ordering::Relaxed),
            (renewed - before) / 10,
            holders.failed.load(Ordering::Relaxed),
            holders.lost(),
            holders.left_ms.load(Ordering::Relaxed),
        );
        before = renewed;
        if second == 6 && outage_s > 0 {
            proxy.refuse(true);
            proxy.cut();
            sleep(Duration::from_secs(outage_s)).await;
            proxy.refuse(false);
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(holders.lost(), 0);
}
