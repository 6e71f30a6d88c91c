//! An unlock whose reply may be lost: a retry over another connection is answered as the first
//! one was.

use std::time::Duration;

use tokio::time::advance;

use crate::{
    client::{Client, NULL, int, ok, request},
    scripts::{DAPRD_UNLOCK, RELEASE},
    stage::{Backend, Stage},
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
