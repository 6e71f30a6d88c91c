//! Locks by `SET`, on each backend.

use std::time::Duration;

use anyhow::ensure;
use leasehold_lock::Mode;
use leasehold_testkit::wait::eventually;
use tokio::time::Instant;

use crate::{
    binary::Binary,
    client::{NULL, PATIENCE, bulk, int, ok},
    scripts::RELEASE,
    stage::{Backend, Setup, Stage, becomes},
};

on_each_backend!(
    a_lock_excludes_every_other_value_and_its_own,
    a_holder_renews_its_lock,
    nobody_else_renews_a_lock,
    a_lock_is_renewed_and_ended_by_comparing_commands,
    what_is_not_held_is_not_renewed,
    a_ttl_is_never_shorter_than_asked,
    a_lock_ends_with_its_ttl,
    a_lock_is_not_deleted_unless_that_is_allowed,
    a_lock_is_deleted_where_that_is_allowed,
    a_lock_that_was_taken_otherwise_excludes_and_is_released_by_its_id,
    a_shared_lock_excludes,
    a_waiter_gets_the_lock_that_a_client_releases,
);

async fn a_lock_excludes_every_other_value_and_its_own(backend: Backend) {
    let stage = Stage::on(backend).await;
    let (mut one, mut other) = (stage.client().await, stage.client().await);
    assert_eq!(one.take("k", "v").await, ok());
    assert_eq!(other.take("k", "w").await, NULL);
    assert_eq!(other.take("k", "v").await, NULL);
    assert_eq!(one.take("k", "v").await, NULL);
    assert_eq!(other.take("k2", "v").await, ok(), "another key is free");
}

async fn a_holder_renews_its_lock(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    assert_eq!(client.ask(&["SET", "k", "v", "XX", "EX", "600"]).await, ok());
    assert!(client.ask(&["PTTL", "k"]).await.number() > 60_000 + 10_000);
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("v"));
}

async fn nobody_else_renews_a_lock(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    assert_eq!(client.ask(&["SET", "k", "w", "XX", "EX", "600"]).await, NULL);
    assert!(client.ask(&["PTTL", "k"]).await.number() <= 62_000);
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("v"));
}

async fn a_lock_is_renewed_and_ended_by_comparing_commands(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    assert_eq!(client.ask(&["SET", "k", "w", "IFEQ", "w", "EX", "600"]).await, NULL);
    assert_eq!(client.ask(&["SET", "k", "v", "IFEQ", "v", "EX", "600"]).await, ok());
    assert!(client.ask(&["PTTL", "k"]).await.number() > 500_000);
    assert_eq!(client.ask(&["DELEX", "k", "IFEQ", "w"]).await, int(0));
    assert_eq!(client.ask(&["DELEX", "k", "IFEQ", "v"]).await, int(1));
    assert!(!client.is_locked("k").await);
}

async fn what_is_not_held_is_not_renewed(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(&["SET", "k", "v", "XX", "EX", "600"]).await, NULL);
    assert!(!client.is_locked("k").await);
}

async fn a_ttl_is_never_shorter_than_asked(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    for ttl in [Duration::from_millis(30_001), Duration::from_millis(125_001)] {
        let (key, ms) = (format!("k{ttl:?}"), ttl.as_millis().to_string());
        let begun = Instant::now();
        assert_eq!(client.ask(&["SET", &key, "v", "NX", "PX", &ms]).await, ok());
        let left = client.ask(&["PTTL", &key]).await.number();
        let left = Duration::from_millis(left.try_into().unwrap());
        // PTTL rounds down to milliseconds.
        let most_left = left + Duration::from_millis(1);
        assert!(most_left + begun.elapsed() >= ttl, "{left:?} of {ttl:?}");
    }
}

#[tokio::test]
async fn pttl_shows_the_rounding_of_etcd() {
    let stage = Stage::on(Backend::Etcd).await;
    let mut client = stage.client().await;
    client.ask(&["SET", "k", "v", "NX", "PX", "125001"]).await;
    // Rounded up to 130 s.
    let left = client.ask(&["PTTL", "k"]).await.number();
    assert!((126_000..=132_000).contains(&left), "{left}");
}

async fn a_lock_ends_with_its_ttl(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.ask(&["SET", "k", "v", "NX", "PX", "300"]).await;
    becomes(&mut client, &["EXISTS", "k"], int(0)).await;
    assert_eq!(client.eval(RELEASE, "k", &["v"]).await, int(0));
    assert_eq!(client.take("k", "w").await, ok());
}

async fn a_lock_is_not_deleted_unless_that_is_allowed(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    for command in ["DEL", "UNLINK"] {
        let reply = client.ask(&[command, "k"]).await.error();
        let expected = format!("ERR leasehold serves locks only: {command} would end the lock");
        assert!(reply.starts_with(&expected), "{reply}");
    }
    assert!(client.is_locked("k").await);
}

async fn a_lock_is_deleted_where_that_is_allowed(backend: Backend) {
    let setup = Setup { allow_delete: true, ..Setup::default() };
    let stage = Stage::with(backend, setup).await;
    let mut client = stage.client().await;
    for key in ["a", "b", "c"] {
        client.take(key, "v").await;
    }
    assert_eq!(client.ask(&["DEL", "a", "free"]).await, int(1));
    assert_eq!(client.ask(&["UNLINK", "b", "c"]).await, int(2));
    assert_eq!(client.ask(&["EXISTS", "a", "b", "c"]).await, int(0));
}

async fn a_lock_that_was_taken_otherwise_excludes_and_is_released_by_its_id(backend: Backend) {
    let stage = Stage::on(backend).await;
    stage.take_otherwise("k", "secret", Mode::Exclusive).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "other").await, NULL);
    assert_eq!(client.eval(RELEASE, "k", &["other"]).await, int(0));
    assert_eq!(client.eval(RELEASE, "k", &["secret"]).await, int(1));
    assert!(!client.is_locked("k").await);
}

async fn a_shared_lock_excludes(backend: Backend) {
    let stage = Stage::on(backend).await;
    stage.take_otherwise("k", "reader-1", Mode::Shared).await;
    stage.take_otherwise("k", "reader-2", Mode::Shared).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, NULL);
}

async fn a_waiter_gets_the_lock_that_a_client_releases(backend: Backend) {
    use leasehold_lock::AcquireRequest;
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    let store = stage.store.clone();
    let waiting =
        tokio::spawn(
            async move { store.lock(AcquireRequest::new("k".parse().unwrap())).await },
        );
    eventually(PATIENCE, "it waits", async || {
        let waiters = stage.look("k").await.waiters;
        anyhow::ensure!(waiters == 1, "{waiters} wait");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(client.eval(RELEASE, "k", &["v"]).await, int(1));
    let granted = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    granted.receipt.accept();
    assert_eq!(client.take("k", "v").await, NULL);
}

/// It ended the lock of another client, and no process had a line of it.
#[tokio::test]
async fn a_lock_that_is_deleted_is_in_the_log() {
    let binary = Binary::memory(&["--allow-delete"]).await;
    let mut client = binary.client().await;
    client.take("k", "v").await;
    assert_eq!(client.ask(&["DEL", "k", "k", "free"]).await, int(1));
    eventually(PATIENCE, "it is logged", async || {
        let log = binary.process.log();
        let line = log.lines().find(|line| line.contains("unlocked by force"));
        ensure!(line.is_some_and(|line| line.contains("store=\"lockstore\"")), "{log}");
        Ok(())
    })
    .await
    .unwrap();
}
