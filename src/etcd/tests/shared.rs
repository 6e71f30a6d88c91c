//! Shared grants: what holds without a queue and without any fault.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_lock::{Attempt, BackendError, LockId, Mode, ReleaseOf, RequestId};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        renewing_a_reader_prolongs_no_other,
        an_unlocked_reader_leaves_nothing_behind,
        a_reader_whose_ttl_changes_keeps_its_token_and_its_request,
        a_shared_replay_finds_its_grant_and_no_clean_up_ends_it,
        a_shared_replay_finds_its_grant_among_many,
        a_request_whose_grant_was_deleted_by_hand_is_granted_again,
        a_lock_id_may_change_its_mode_between_grants,
        a_failed_try_for_a_reader_writes_nothing,
        concurrent_readers_share_few_raft_writes,
        force_ends_all_readers,
        a_repeated_force_spares_later_readers,
        the_limit_of_readers_counts_those_of_other_processes,
        concurrent_tries_of_a_process_never_exceed_the_limit,
        a_foreign_key_among_the_readers_counts_as_one,
    ]
}

fn named(lock_id: &str) -> Attempt {
    let lock_id = LockId::new(lock_id).unwrap();
    Attempt { lock_id, lock_id_given: true, ..reader("r") }
}

fn requested(request: &str) -> Attempt {
    Attempt { request_id: RequestId::new(request).unwrap(), ..reader("r") }
}

fn is_locked<T>(result: &Result<T, BackendError>) -> bool {
    matches!(result, Err(BackendError::Locked { .. }))
}

/// Trap: etcd 59
async fn renewing_a_reader_prolongs_no_other(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let ttl = attempt("r", Duration::from_secs(2)).ttl;
    let brief = || Attempt { ttl, ..reader("r") };
    let kept = backend.try_lock(&brief(), until()).await.unwrap();
    backend.try_lock(&brief(), until()).await.unwrap();
    eventually("the reader that nobody renews has expired", async || {
        renew(&backend, "r", &kept.lock_id, Duration::from_secs(2)).await.unwrap();
        readers(&server, "r").await.len() == 1
    })
    .await;
}

async fn an_unlocked_reader_leaves_nothing_behind(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for unlocks in [&a, &b] {
        let grant = a.try_lock(&requested("secret"), until()).await.unwrap();
        assert_eq!(keys(&server, "/t/r/r/").await.len(), 2, "its record and its request");
        unlock(unlocks, "r", &grant).await.unwrap();
        assert!(keys(&server, "/t/r/").await.is_empty());
    }
}

async fn a_reader_whose_ttl_changes_keeps_its_token_and_its_request(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = a.try_lock(&requested("secret"), until()).await.unwrap();
    for (backend, ttl) in [(&a, 60), (&b, 90), (&a, 40)] {
        renew(backend, "r", &grant.lock_id, Duration::from_secs(ttl)).await.unwrap();
        let found = readers(&server, "r").await;
        assert_eq!(found[0].create_revision() as u64, token(&grant));
        let again = b.try_lock(&requested("secret"), until()).await.unwrap();
        assert_eq!(again.lock_id, grant.lock_id);
    }
    unlock(&a, "r", &grant).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn a_shared_replay_finds_its_grant_and_no_clean_up_ends_it(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let (first, repeated) = (requested("secret"), requested("secret"));
    let grant = a.try_lock(&first, until()).await.unwrap();
    let again = b.try_lock(&repeated, until()).await.unwrap();
    assert!(!again.created);
    assert_eq!((&again.lock_id, again.token), (&grant.lock_id, grant.token));
    undo(&b, &repeated).await.unwrap();
    undo(&a, &first).await.unwrap();
    assert_eq!(readers(&server, "r").await.len(), 1);
    unlock(&a, "r", &again).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

async fn a_shared_replay_finds_its_grant_among_many(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = crate::proxy::Proxy::start(&server.url).await;
    let (a, b) = (open(&server.url).await, open(proxy.address()).await);
    let grant = a.try_lock(&requested("secret"), until()).await.unwrap();
    read_many(&a, "r", 500).await;
    let bytes = proxy.replied_bytes();
    let again = b.try_lock(&requested("secret"), until()).await.unwrap();
    assert_eq!(again.lock_id, grant.lock_id);
    let bytes = proxy.replied_bytes() - bytes;
    assert!(bytes < 10_000, "{bytes} bytes were answered");
}

async fn a_request_whose_grant_was_deleted_by_hand_is_granted_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    backend.try_lock(&requested("secret"), until()).await.unwrap();
    let record = readers(&server, "r").await.remove(0);
    server.client().await.delete(record.key(), None).await.unwrap();
    let again = backend.try_lock(&requested("secret"), until()).await.unwrap();
    assert!(again.created);
    let found = backend.try_lock(&requested("secret"), until()).await.unwrap();
    assert_eq!((found.lock_id, found.created), (again.lock_id, false));
}

async fn a_lock_id_may_change_its_mode_between_grants(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for round in 0..6 {
        let (locks, other) = if round % 3 == 0 { (&a, &b) } else { (&b, &a) };
        let mode = if round % 2 == 0 { Mode::Shared } else { Mode::Exclusive };
        let mine = Attempt { mode, ..named("mine") };
        let grant = locks.try_lock(&mine, until()).await.unwrap();
        for backend in [locks, other] {
            renew(backend, "r", &grant.lock_id, TTL).await.unwrap();
        }
        unlock(if round < 3 { locks } else { other }, "r", &grant).await.unwrap();
        assert!(keys(&server, "/t/r/").await.is_empty(), "round {round}");
    }
}

async fn a_failed_try_for_a_reader_writes_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let _ = try_read(&b, "r").await;
    let (revision, leases) = (server.revision().await, server.leases().await);
    let raft = server.raft_index().await;
    for _ in 0..200 {
        for backend in [&a, &b] {
            assert!(is_locked(&try_read(backend, "r").await));
        }
    }
    assert_eq!((server.revision().await, server.leases().await), (revision, leases));
    assert!(server.raft_index().await < raft + 20, "failed tries are raft entries");
}

async fn concurrent_readers_share_few_raft_writes(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let all = async || {
        let waits: Vec<_> = (0..100).map(|_| read(&backend, "r")).collect();
        join_all(waits.into_iter().map(soon)).await
    };
    // So that leases are kept.
    for grant in all().await {
        unlock(&backend, "r", &grant).await.unwrap();
    }
    let raft = server.raft_index().await;
    let grants = all().await;
    let writes = server.raft_index().await - raft;
    assert!(writes <= 10, "{writes} raft entries for {} grants", grants.len());
}

async fn force_ends_all_readers(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut grants = read_many(&a, "r", 500).await;
    let forced = release("r", ReleaseOf::Anyone);
    let mut ended = b.unlock(&forced, until()).await;
    eventually("all are ended", async || {
        if matches!(ended, Err(BackendError::Unknown(_))) {
            ended = b.unlock(&forced, until()).await;
        }
        matches!(ended, Ok(()) | Err(BackendError::NotHeld { .. }))
    })
    .await;
    assert!(keys(&server, "/t/r/").await.is_empty());
    assert_eq!(force(&b, "r").await, Err(BackendError::NotHeld { held: false }));
    let (first, gone) = (grants.remove(0), BackendError::NotHeld { held: false });
    assert_eq!(renew(&a, "r", &first.lock_id, TTL).await, Err(gone));
}

async fn a_repeated_force_spares_later_readers(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let before = try_read(&backend, "r").await.unwrap();
    let force = release("r", ReleaseOf::Anyone);
    backend.unlock(&force, until()).await.unwrap();
    try_read(&backend, "r").await.unwrap();
    let held = Err(BackendError::NotHeld { held: true });
    assert_eq!(backend.unlock(&force, until()).await, held);
    assert_eq!(readers(&server, "r").await.len(), 1);
    assert_eq!(unlock(&backend, "r", &before).await, held);
}

async fn limited(server: &EtcdServer, max: &str) -> Shared {
    let items =
        [("endpoints", server.url.as_str()), ("keyPrefixPath", "/t"), ("maxHolders", max)];
    open_with(&items).await
}

async fn the_limit_of_readers_counts_those_of_other_processes(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (limited(&server, "30").await, limited(&server, "30").await);
    for n in 0..30 {
        try_read(if n < 15 { &a } else { &b }, "r").await.unwrap();
    }
    for backend in [&a, &b] {
        assert_eq!(try_read(backend, "r").await, Err(BackendError::TooManyHolders));
    }
}

async fn concurrent_tries_of_a_process_never_exceed_the_limit(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = limited(&server, "20").await;
    let tries = join_all((0..60).map(|_| try_read(&backend, "r"))).await;
    let granted = tries.iter().filter(|tried| tried.is_ok()).count();
    assert_eq!((granted, readers(&server, "r").await.len()), (20, 20));
}

/// Otherwise a writer would compare the range of the readers' keys for ever.
async fn a_foreign_key_among_the_readers_counts_as_one(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    server.client().await.put("/t/r/r/h/somebody", "", None).await.unwrap();
    assert!(is_locked(&try_lock(&backend, "r").await));
    let mut wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    let waited = tokio::time::timeout(Duration::from_millis(300), &mut wait).await;
    assert!(waited.is_err());
    force(&backend, "r").await.unwrap();
    soon(wait).await;
}
