//! Try, unlock, force, replay: what holds without any fault.

use std::{sync::Arc, time::Duration};

use etcd_client::PutOptions;
use leasehold_lock::{Attempt, AttemptId, BackendError, FencingToken, LockId, Mode, ReleaseOf};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        tokens_rise_across_a_restart_of_etcd,
        a_failed_try_writes_nothing,
        force_ends_anybodys_grant,
        a_replay_finds_its_grant_and_no_clean_up_ends_it,
        a_release_spares_what_a_repeated_request_has_got_elsewhere,
        a_retried_unlock_never_ends_a_later_grant,
        a_release_that_names_a_token_ends_the_grant_with_that_token_only,
        foreign_values_count_as_held,
        force_ends_one_foreign_lock_and_leaves_its_lease,
        a_foreign_key_beside_the_holders_does_not_stop_a_try,
        a_grant_that_another_process_rewrote_is_unlocked_by_its_maker,
        odd_names_and_prefixes_do_not_meet,
        many_locks_at_once_are_all_granted,
        operations_have_the_results_that_the_model_has,
    ]
}

/// Trap: etcd 26
async fn tokens_rise_across_a_restart_of_etcd(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
    server.restart();
    server.ready().await;
    eventually("the backend finds etcd again", || async {
        backend.ping(until()).await.is_ok()
    })
    .await;
    assert!(token(&try_lock(&backend, "r").await.unwrap()) > token(&grant));
}

/// Trap: etcd 2
async fn a_failed_try_writes_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let _ = try_lock(&b, "r").await;
    let (revision, leases) = (server.revision().await, server.leases().await);
    let raft = server.raft_index().await;
    // A thousand of them: trap 2.
    for _ in 0..500 {
        for backend in [&a, &b] {
            assert!(matches!(try_lock(backend, "r").await, Err(BackendError::Locked { .. })));
        }
    }
    assert_eq!(server.revision().await, revision);
    assert_eq!(server.leases().await, leases);
    assert!(server.raft_index().await < raft + 20, "failed tries are raft entries");
    assert_eq!(keys(&server, "/t/").await, ["/t/r/r/h"]);
}

/// Trap: etcd 22
async fn force_ends_anybodys_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = try_lock(&a, "r").await.unwrap();
    force(&b, "r").await.unwrap();
    let next = try_lock(&b, "r").await.unwrap();
    assert_eq!(unlock(&a, "r", &grant).await, Err(BackendError::NotHeld { held: true }));
    assert_eq!(
        renew(&a, "r", &grant.lock_id, TTL).await,
        Err(BackendError::NotHeld { held: true })
    );
    unlock(&b, "r", &next).await.unwrap();
}

/// Trap: etcd 23
async fn a_replay_finds_its_grant_and_no_clean_up_ends_it(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let first = repeatable("r", "secret");
    let grant = a.try_lock(&first, until()).await.unwrap();
    let repeated = repeatable("r", "secret");
    let again = b.try_lock(&repeated, until()).await.unwrap();
    assert!(!again.created);
    assert_eq!((&again.lock_id, again.token), (&grant.lock_id, grant.token));
    undo(&b, &repeated).await.unwrap();
    undo(&a, &first).await.unwrap();
    assert!(matches!(try_lock(&a, "r").await, Err(BackendError::Locked { .. })));
    let waited = a.lock(&repeatable("r", "secret")).await.unwrap();
    assert_eq!(waited.lock_id, grant.lock_id);
    unlock(&a, "r", &again).await.unwrap();
    try_lock(&b, "r").await.unwrap();
}

/// Trap: etcd 22
async fn a_release_spares_what_a_repeated_request_has_got_elsewhere(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let first = Attempt { mode, ..repeatable("r", "secret") };
        let again = Attempt { id: AttemptId::random(), ..first.clone() };
        let grant = a.try_lock(&first, until()).await.unwrap();
        b.try_lock(&again, until()).await.unwrap();
        let end = |of: &Attempt| release("r", ReleaseOf::Claim(grant.lock_id.clone(), of.id));
        let spared = a.unlock(&end(&first), until()).await;
        assert_eq!(spared, Err(BackendError::NotHeld { held: true }), "{mode:?}");
        b.unlock(&end(&again), until()).await.unwrap();
        let third = attempt("r", TTL);
        let grant = a.try_lock(&third, until()).await.unwrap();
        let end = release("r", ReleaseOf::Claim(grant.lock_id, third.id));
        a.unlock(&end, until()).await.unwrap();
    }
}

/// Trap: etcd 21, etcd 47
async fn a_retried_unlock_never_ends_a_later_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut mine = attempt("r", TTL);
    mine.lock_id_given = true;
    let grant = a.try_lock(&mine, until()).await.unwrap();
    let of = leasehold_lock::ReleaseOf::Owner(grant.lock_id.clone());
    for first in [&a, &b] {
        let release = release("r", of.clone());
        first.unlock(&release, until()).await.unwrap();
        // The same name again, as alpha1's callers choose their own.
        mine.id = AttemptId::random();
        let later = first.try_lock(&mine, until()).await.unwrap();
        for again in [&a, &b] {
            assert_eq!(
                again.unlock(&release, until()).await,
                Err(BackendError::NotHeld { held: true })
            );
        }
        renew(&b, "r", &later.lock_id, TTL).await.unwrap();
    }
}

async fn a_release_that_names_a_token_ends_the_grant_with_that_token_only(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut mine = attempt("r", TTL);
    mine.lock_id_given = true;
    for backend in [&a, &b] {
        mine.id = AttemptId::random();
        let at = |token| release("r", ReleaseOf::Token(mine.lock_id.clone(), token));
        let first = a.try_lock(&mine, until()).await.unwrap().token.unwrap();
        backend.unlock(&at(first), until()).await.unwrap();
        mine.id = AttemptId::random();
        let second = a.try_lock(&mine, until()).await.unwrap().token.unwrap();
        let other = Err(BackendError::NotHeld { held: true });
        assert_eq!(backend.unlock(&at(first), until()).await, other);
        // No grant has this token yet.
        let later = FencingToken::new(second.get() + 1).unwrap();
        assert_eq!(backend.unlock(&at(later), until()).await, other);
        backend.unlock(&at(second), until()).await.unwrap();
    }
}

async fn foreign_values_count_as_held(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut client = server.client().await;
    for (n, value) in [&b"hello"[..], b"", b"{}", b"\xff\xfe\x00"].into_iter().enumerate() {
        let resource = format!("r{n}");
        client.put(format!("/t/r/{resource}/h"), value, None).await.unwrap();
        client.put(format!("/t/r/{resource}/junk"), value, None).await.unwrap();
        assert_eq!(try_lock(&backend, &resource).await, Err(BackendError::Locked { by: None }));
        let wait = lock(&backend, &resource);
        queued(&server, &resource, 1).await;
        let nobody = LockId::new("hello").unwrap();
        assert_eq!(
            renew(&backend, &resource, &nobody, TTL).await,
            Err(BackendError::NotHeld { held: true })
        );
        force(&backend, &resource).await.unwrap();
        soon(wait).await;
    }
    client.put("/t/r/q/q/not-an-entry", "x", Some(PutOptions::new())).await.unwrap();
    let held = try_lock(&backend, "q").await;
    assert!(matches!(held, Err(BackendError::Locked { .. })), "somebody may wait there");
}

/// Its lease was revoked, which ended another lock and took a key that is none.
async fn force_ends_one_foreign_lock_and_leaves_its_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut client = server.client().await;
    let lease = client.lease_grant(600, None).await.unwrap().id();
    for key in ["/t/r/a/h", "/t/r/b/h", "/services/web"] {
        let under = PutOptions::new().with_lease(lease);
        client.put(key, "x", Some(under)).await.unwrap();
    }
    force(&backend, "a").await.unwrap();
    try_lock(&backend, "a").await.unwrap();
    assert_eq!(keys(&server, "/services/").await, ["/services/web"]);
    assert_eq!(try_lock(&backend, "b").await, Err(BackendError::Locked { by: None }));
}

/// A try compares all of a resource's keys at once, and such a key is among
/// them.
async fn a_foreign_key_beside_the_holders_does_not_stop_a_try(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    server.client().await.put("/t/r/r/junk", "x", None).await.unwrap();
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
    assert_eq!(keys(&server, "/t/r/").await, ["/t/r/r/junk"]);
}

/// An unlock by the grant's maker compares what it wrote itself, which is no
/// longer there: the lease that counts is the other process's.
async fn a_grant_that_another_process_rewrote_is_unlocked_by_its_maker(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for round in 0..20 {
        let grant = try_lock(&a, "r").await.unwrap();
        let longer = TTL + Duration::from_secs(1 + round % 3);
        renew(&b, "r", &grant.lock_id, longer).await.unwrap();
        unlock(&a, "r", &grant).await.unwrap();
        assert!(keys(&server, "/t/r/").await.is_empty());
    }
    eventually("the leases of ended grants end", async || server.leases().await <= 6).await;
}

/// Trap: etcd 29
async fn odd_names_and_prefixes_do_not_meet(version: Version) {
    let server = EtcdServer::start(version).await;
    let names = ["a/b", "a", "b", "a%2Fb", "a%b", "é/ü {x}", "q/", "/", "a/h"];
    let mut stores = Vec::new();
    for prefix in ["", "/p", "/p/s", "/p/rr", "päth with spaces*", "s"] {
        let items = [("endpoints", server.url.as_str()), ("keyPrefixPath", prefix)];
        stores.push(open_with(&items).await);
    }
    let mut grants = Vec::new();
    for store in &stores {
        for name in names {
            grants.push((store, name, try_lock(store, name).await.unwrap()));
        }
    }
    for (store, name, grant) in grants {
        unlock(store, name, &grant).await.unwrap();
    }
}

/// Trap: etcd 20
async fn many_locks_at_once_are_all_granted(version: Version) {
    let server = EtcdServer::start_with(version, &["--max-txn-ops", "20"]).await;
    let backend = open(&server.url).await;
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let resource = format!("r{}", n % 100);
                let grant = match try_lock(&backend, &resource).await {
                    Ok(grant) => grant,
                    Err(BackendError::Locked { .. }) => return 0,
                    Err(error) => panic!("{error}"),
                };
                unlock(&backend, &resource, &grant).await.unwrap();
                1
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    assert!(granted >= 100);
    assert!(keys(&server, "/t/r/").await.is_empty());
}

/// The simulation's model is held against the real thing.
async fn operations_have_the_results_that_the_model_has(version: Version) {
    let server = EtcdServer::start(version).await;
    for seed in 0..3 {
        let prefix = format!("/{seed}");
        let items = [("endpoints", &*server.url), ("keyPrefixPath", &*prefix)];
        let handles = vec![open_with(&items).await, open_with(&items).await];
        leasehold_testing::Differential::new(handles, seed).run(100).await;
    }
}
