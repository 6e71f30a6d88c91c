//! TTLs and the leases that keep them: what holds without any fault.

use std::time::Duration;

use leasehold_lock::BackendError;
use tokio::time::Instant;

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        an_expired_grant_is_never_revived,
        a_renewal_changes_the_ttl_either_way,
        a_deleted_key_is_not_renewed,
        a_short_ttl_is_rounded_up_and_returned,
        a_reused_lease_gives_the_whole_ttl,
        leases_return_to_the_kept_ones_and_end_at_close,
    ]
}

/// Trap: etcd 13
async fn an_expired_grant_is_never_revived(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = a.try_lock(&attempt("r", Duration::from_secs(1)), until()).await.unwrap();
    let next = soon(lock(&b, "r")).await;
    assert!(token(&next) > token(&grant));
    assert!(next.since >= grant.since + grant.ttl, "it ended before its TTL");
    unlock(&b, "r", &next).await.unwrap();
    assert_eq!(
        renew(&a, "r", &grant.lock_id, TTL).await,
        Err(BackendError::NotHeld { held: false })
    );
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn a_renewal_changes_the_ttl_either_way(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = try_lock(&a, "r").await.unwrap();
    for (backend, ttl) in [(&a, 60), (&b, 90), (&a, 2), (&b, 40), (&b, 40)] {
        let asked = Instant::now();
        let renewed =
            renew(backend, "r", &grant.lock_id, Duration::from_secs(ttl)).await.unwrap();
        assert_eq!(renewed.ttl, Duration::from_secs(ttl));
        let mut client = server.client().await;
        let pair = client.get("/t/r/r/h", None).await.unwrap().take_kvs().remove(0);
        assert_eq!(pair.create_revision() as u64, token(&grant));
        let lease = client.lease_client().time_to_live(pair.lease(), None).await.unwrap();
        assert_eq!(lease.granted_ttl() as u64, ttl + 1);
        let left = Duration::from_secs(lease.ttl() as u64);
        assert!(left + asked.elapsed() >= renewed.ttl, "{left:?}");
    }
    unlock(&a, "r", &grant).await.unwrap();
    assert!(try_lock(&b, "r").await.is_ok());
}

/// What is left of a lease. etcd reports whole seconds, rounded down.
fn at_most(reported_s: i64) -> Duration {
    Duration::from_secs((reported_s + 1) as u64)
}

/// Trap: etcd 13
async fn a_deleted_key_is_not_renewed(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    server.client().await.delete("/t/r/r/h", None).await.unwrap();
    assert_eq!(
        renew(&backend, "r", &grant.lock_id, TTL).await,
        Err(BackendError::NotHeld { held: false })
    );
    assert_eq!(unlock(&backend, "r", &grant).await, Err(BackendError::NotHeld { held: false }));
    try_lock(&backend, "r").await.unwrap();
}

/// Trap: etcd 30
async fn a_short_ttl_is_rounded_up_and_returned(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for (asked_ms, granted_s) in [(100, 2), (1_999, 2), (2_001, 3), (10_000, 10)] {
        let asked = Duration::from_millis(asked_ms);
        let grant = backend.try_lock(&attempt("r", asked), until()).await.unwrap();
        assert_eq!(grant.ttl, Duration::from_secs(granted_s));
        unlock(&backend, "r", &grant).await.unwrap();
    }
}

/// Trap: etcd 15, etcd 30
async fn a_reused_lease_gives_the_whole_ttl(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let ttl = Duration::from_secs(4);
    for pause_ms in [0, 300, 900, 1_500, 2_600] {
        let asked = Instant::now();
        let grant = backend.try_lock(&attempt("r", ttl), until()).await.unwrap();
        let mut client = server.client().await;
        let lease = client.get("/t/r/r/h", None).await.unwrap().kvs()[0].lease();
        let left = client.lease_client().time_to_live(lease, None).await.unwrap().ttl();
        let ends = at_most(left) + asked.elapsed();
        assert!(ends >= ttl, "{left} s of 4 are left after a pause of {pause_ms} ms");
        unlock(&backend, "r", &grant).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
    }
    assert_eq!(server.leases().await, 1, "one lease did it all");
}

/// Trap: etcd 3, etcd 20
async fn leases_return_to_the_kept_ones_and_end_at_close(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for _ in 0..5 {
        for backend in [&a, &b] {
            let grant = try_lock(&a, "r").await.unwrap();
            // Also when another process unlocks, renews or forces.
            renew(&b, "r", &grant.lock_id, Duration::from_secs(50)).await.unwrap();
            unlock(backend, "r", &grant).await.unwrap();
            try_lock(&b, "r").await.unwrap();
            force(&a, "r").await.unwrap();
        }
    }
    eventually("no more leases than are kept", || async { server.leases().await <= 6 }).await;
    a.close().await;
    b.close().await;
    eventually("no lease is left", || async { server.leases().await == 0 }).await;
}
