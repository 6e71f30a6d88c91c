//! No lease outlives the lock that it was granted for.

use std::{pin::pin, sync::Arc};

use futures_util::{future::join_all, poll};
use leasehold_lock::{BackendError, LockId};
use tokio::time::{Duration, Instant};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
    limits::make_space,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_process_that_renews_anothers_grant_ends_its_lease,
        a_grant_whose_move_lost_its_answer_leaves_no_lease,
        without_space_a_move_is_unavailable_and_leaves_no_lease,
        tries_at_once_on_held_resources_take_few_leases,
        an_undo_that_loses_to_a_claim_spares_its_lease,
    ]
}

async fn leases_become(server: &EtcdServer, count: usize) {
    eventually(&format!("{count} leases"), async || server.leases().await == count).await;
}

/// A rolling restart: each process renews what the one before it held. A lease that was left
/// behind lived for its TTL, up to a day.
async fn a_process_that_renews_anothers_grant_ends_its_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let names = names(5);
    let mut process = open(&server.url).await;
    let grants = lock_all(&process, &names, TTL).await;
    for _ in 0..3 {
        process.close().await;
        process = open(&server.url).await;
        for (name, grant) in names.iter().zip(&grants) {
            renew(&process, name, &grant.lock_id, TTL).await.unwrap();
        }
        leases_become(&server, names.len()).await;
    }
    for (name, grant) in names.iter().zip(&grants) {
        unlock(&process, name, grant).await.unwrap();
    }
    process.close().await;
    leases_become(&server, 0).await;
}

/// How a grant comes to lie under another lease.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// The request that made it is repeated.
    Replay,
    /// It is renewed with another TTL.
    Renewal,
}

impl Move {
    async fn run(
        self,
        backend: &Shared,
        lock_id: &LockId,
        within: Duration,
    ) -> Result<(), BackendError> {
        let by = Instant::now() + within;
        match self {
            Self::Replay => backend.try_lock(&repeatable("r", "request"), by).await.map(|_| ()),
            Self::Renewal => {
                let renewal = renewal("r", lock_id, 3 * TTL);
                backend.renew(&renewal, by).await.map(|_| ())
            }
        }
    }
}

async fn a_grant_whose_move_lost_its_answer_leaves_no_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    for moved in [Move::Replay, Move::Renewal] {
        for is_applied in [true, false] {
            for is_renewed in [true, false] {
                let proxy = Proxy::start(&server.url).await;
                let backend = open(proxy.address()).await;
                let first = repeatable("r", "request");
                let held = backend.try_lock(&first, until()).await.unwrap();
                // Only the write of a record contains this.
                let write = "\"ttl\":";
                match is_applied {
                    true => proxy.lose_reply_to(write),
                    false => proxy.hold_request(write),
                }
                proxy.refuse(true);
                let lost = moved.run(&backend, &held.lock_id, Duration::from_secs(3)).await;
                assert!(matches!(lost, Err(BackendError::Unknown(_))), "{moved:?}: {lost:?}");
                proxy.refuse(false);
                if is_renewed {
                    eventually("it is renewed", async || {
                        renew(&backend, "r", &held.lock_id, TTL).await.is_ok()
                    })
                    .await;
                }
                leases_become(&server, 1).await;
                unlock(&backend, "r", &held).await.unwrap();
                backend.close().await;
                leases_become(&server, 0).await;
            }
        }
    }
}

async fn without_space_a_move_is_unavailable_and_leaves_no_lease(version: Version) {
    let server = EtcdServer::start_with(version, &["--quota-backend-bytes", "4194304"]).await;
    for moved in [Move::Replay, Move::Renewal] {
        // Another one of each, which does not know yet that there is no space.
        let backend = open(&server.url).await;
        let held = backend.try_lock(&repeatable("r", "request"), until()).await.unwrap();
        // Both find a lease to reuse.
        for ttl in [TTL, 3 * TTL] {
            let other = backend.try_lock(&attempt("other", ttl), until()).await.unwrap();
            unlock(&backend, "other", &other).await.unwrap();
        }
        let filled = async {
            let mut client = server.client().await;
            while client.put("fill", vec![b'x'; 500_000], None).await.is_ok() {}
            client
        };
        let mut client = filled.await;
        let refused = moved.run(&backend, &held.lock_id, SOON).await;
        assert!(matches!(refused, Err(BackendError::Unavailable(_))), "{moved:?}: {refused:?}");
        unlock(&backend, "r", &held).await.unwrap();
        backend.close().await;
        leases_become(&server, 0).await;
        make_space(&mut client).await;
    }
}

/// A lease is a raft entry of its own, of which etcd carries out some thousands a second. Tries
/// that took one before they looked at the resource ended with `STORE_UNAVAILABLE`.
async fn tries_at_once_on_held_resources_take_few_leases(version: Version) {
    let server = EtcdServer::start(version).await;
    let (holder, other) = (open(&server.url).await, open(&server.url).await);
    let names = names(300);
    for some in names.chunks(50) {
        lock_all(&holder, some, TTL).await;
    }
    let granted = async || server.metric("etcd_debugging_lease_granted_total").await;
    let before = granted().await;
    let tries = names.iter().map(|name| {
        let (other, name) = (Arc::clone(&other), name.clone());
        tokio::spawn(async move { try_lock(&other, &name).await })
    });
    for tried in join_all(tries).await {
        let tried = tried.unwrap();
        assert!(matches!(tried, Err(BackendError::Locked { .. })), "{tried:?}");
    }
    let leases = granted().await - before;
    assert!(leases <= 32.0, "{leases} leases were granted for 300 tries");
}

/// The delete of an undo is refused because a replay has claimed the grant. Its lease was revoked
/// nevertheless, and with it the grant that the replay had been answered.
/// Trap: etcd 32
async fn an_undo_that_loses_to_a_claim_spares_its_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let first = repeatable("r", "request");
    backend.try_lock(&first, until()).await.unwrap();
    // Only the write of a record contains this.
    proxy.lose_reply_to("\"ttl\":");
    proxy.refuse(true);
    let claim = tokio::spawn({
        let backend = Arc::clone(&backend);
        async move { backend.try_lock(&repeatable("r", "request"), until()).await }
    });
    eventually("it is claimed", async || {
        let held = holder(&server, "r").await;
        held.is_some_and(|held| held.value_str().unwrap().contains("claimed"))
    })
    .await;
    // It begins while this process does not know of the claim.
    let mut undone = pin!(undo(&backend, &first));
    assert!(poll!(&mut undone).is_pending());
    proxy.refuse(false);
    let (claimed, undone) = tokio::join!(soon(claim), undone);
    undone.unwrap();
    // It is known by then what is to be revoked, and closing waits for that.
    backend.close().await;
    assert!(holder(&server, "r").await.is_some(), "the claimed grant has ended");
    let other = open(&server.url).await;
    unlock(&other, "r", &claimed).await.unwrap();
}
