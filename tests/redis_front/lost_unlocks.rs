//! An unlock whose reply may be lost: a retry over another connection is answered as the first
//! one was.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::advance};

use crate::{
    client::{Client, NULL, int, ok, request},
    scripts::{DAPRD_UNLOCK, RELEASE},
    stage::{Backend, Stage, becomes},
};

on_each_backend!(
    an_unlock_after_a_close_is_answered_as_the_first_one,
    an_unlock_after_a_reset_is_answered_as_the_first_one,
);

/// Takes and unlocks `k`.
async fn unlocked(stage: &Stage) -> Client {
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(1));
    client
}

async fn unlock_again(stage: &Stage, value: &str) -> crate::client::Value {
    stage.settled().await;
    stage.client().await.eval(DAPRD_UNLOCK, "k", &[value]).await
}

async fn an_unlock_after_a_close_is_answered_as_the_first_one(backend: Backend) {
    let stage = Stage::on(backend).await;
    drop(unlocked(&stage).await);
    assert_eq!(unlock_again(&stage, "v").await, int(1));
}

async fn an_unlock_after_a_reset_is_answered_as_the_first_one(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    client.send(&request(&["EVAL", DAPRD_UNLOCK, "1", "k", "v"])).await;
    client.readable().await;
    client.reset();
    assert_eq!(unlock_again(&stage, "v").await, int(1));
}

#[tokio::test]
async fn an_unlock_after_a_further_command_finds_nothing() {
    let stage = Stage::memory().await;
    let mut client = unlocked(&stage).await;
    client.ask(&["PING"]).await;
    drop(client);
    assert_eq!(unlock_again(&stage, "v").await, int(-1));
}

#[tokio::test]
async fn an_unlock_over_the_same_connection_finds_nothing() {
    let stage = Stage::memory().await;
    let mut client = unlocked(&stage).await;
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1));
}

#[tokio::test]
async fn an_unlock_is_answered_again_once() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    let mut client = stage.client().await;
    stage.settled().await;
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(1));
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1));
}

#[tokio::test]
async fn an_unlock_with_another_value_finds_nothing() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    assert_eq!(unlock_again(&stage, "w").await, int(-1));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_is_answered_again_for_10_seconds_only() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    stage.settled().await;
    advance(Duration::from_millis(10_100)).await;
    assert_eq!(unlock_again(&stage, "v").await, int(-1));
}

#[tokio::test]
async fn a_retried_unlock_does_not_end_the_lock_of_another() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    stage.settled().await;
    let mut other = stage.client().await;
    assert_eq!(other.take("k", "w").await, ok());
    let mut client = stage.client().await;
    assert_eq!(client.eval(RELEASE, "k", &["v"]).await, int(1));
    assert_eq!(other.ask(&["GET", "k"]).await.text(), "w");
    assert_eq!(other.take("k", "v").await, NULL);
}

#[tokio::test]
async fn an_unlock_that_found_nothing_is_not_kept() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1));
    drop(client);
    assert_eq!(unlock_again(&stage, "v").await, int(-1));
}

/// Clients that use one value all the time.
#[tokio::test(start_paused = true)]
async fn the_end_of_an_earlier_lock_of_the_value_is_not_told_of_a_later_one() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    stage.settled().await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(&["SET", "k", "v", "NX", "PX", "1000"]).await, ok());
    advance(Duration::from_millis(1_100)).await;
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1), "it has expired");
}

/// A value that was refused was once told that it had unlocked the lock of another.
#[tokio::test]
async fn the_end_of_a_lock_is_not_told_after_a_refused_try() {
    let stage = Stage::memory().await;
    drop(unlocked(&stage).await);
    stage.settled().await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "another").await, ok());
    assert_eq!(client.take("k", "v").await, NULL);
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-2));
}

/// The connection of the earlier unlock may be closed only after the later lock was taken.
#[tokio::test]
async fn an_earlier_unlock_whose_connection_closes_late_is_not_told_of_a_later_lock() {
    let stage = Stage::memory().await;
    let earlier = unlocked(&stage).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    assert_eq!(client.eval(RELEASE, "k", &["v"]).await, int(1));
    assert_eq!(client.ask(&["PING"]).await, crate::client::Value::Simple("PONG".into()));
    drop(earlier);
    stage.settled().await;
    assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1));
}

/// The answer to the unlock waits for that to an earlier command, and is lost with it.
#[tokio::test]
async fn an_unlock_behind_a_command_that_is_not_answered_is_answered_again() {
    let held_up = Arc::new(Notify::new());
    let stage = Stage::memory().await;
    let (store, release) = (stage.store.clone(), Arc::clone(&held_up));
    let calls = Arc::new(AtomicUsize::new(0));
    // The second call is kept waiting for its store.
    let find = Arc::new(move || {
        let (store, release) = (store.clone(), Arc::clone(&release));
        let is_second = calls.fetch_add(1, Ordering::Relaxed) == 1;
        Box::pin(async move {
            if is_second {
                release.notified().await;
            }
            Ok(store)
        }) as _
    });
    let front = stage.another_front(find).await;
    let mut client = Client::connect(front.addresses()[0]).await;
    assert_eq!(client.take("k", "v").await, ok());
    let pipeline = [request(&["GET", "slow"]), request(&["EVAL", DAPRD_UNLOCK, "1", "k", "v"])];
    client.send(&pipeline.concat()).await;
    let mut again = Client::connect(front.addresses()[0]).await;
    becomes(&mut again, &["EXISTS", "k"], int(0)).await;
    drop(client);
    again.settle().await;
    assert_eq!(again.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(1));
    held_up.notify_waiters();
}
