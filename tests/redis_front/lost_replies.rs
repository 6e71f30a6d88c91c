//! A lock whose reply was lost. A retry finds it if the connection was reset, because then the
//! client has not seen the reply; else it is refused as Redis refuses it.

use std::time::Duration;

use tokio::time::advance;

use crate::{
    client::{Client, NULL, ok, request},
    scripts::SPRING_OBTAIN,
    stage::{Backend, Stage},
};

on_each_backend!(
    a_set_after_a_reset_finds_its_own_grant,
    a_set_after_a_close_is_refused,
    a_set_with_another_value_after_a_reset_is_refused,
);

/// Takes the lock of `k`, and leaves the reply unread.
async fn taken_unread(stage: &Stage) -> Client {
    let mut client = stage.client().await;
    client.send(&request(&["SET", "k", "v", "NX", "PX", "60000"])).await;
    client.readable().await;
    client
}

/// The same, and then the connection is reset.
async fn taken_and_reset(stage: &Stage) {
    taken_unread(stage).await.reset();
    stage.settled().await;
}

async fn a_set_after_a_reset_finds_its_own_grant(backend: Backend) {
    let stage = Stage::on(backend).await;
    taken_and_reset(&stage).await;
    let before = stage.look("k").await;
    assert_eq!(stage.client().await.take("k", "v").await, ok());
    let after = stage.look("k").await;
    assert_eq!(after.lock.grants[0].id, before.lock.grants[0].id);
    assert_eq!(after.published, before.published);
}

async fn a_set_after_a_close_is_refused(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    drop(client);
    stage.settled().await;
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}

async fn a_set_with_another_value_after_a_reset_is_refused(backend: Backend) {
    let stage = Stage::on(backend).await;
    taken_and_reset(&stage).await;
    assert_eq!(stage.client().await.take("k", "w").await, NULL);
    assert_eq!(stage.client().await.take("k", "v").await, ok(), "the holder still finds it");
}

#[tokio::test]
async fn a_set_after_a_further_command_and_a_reset_is_refused() {
    let stage = Stage::memory().await;
    let mut client = taken_unread(&stage).await;
    client.send(&request(&["PING"])).await;
    stage.settled().await;
    client.reset();
    stage.settled().await;
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}

#[tokio::test]
async fn the_grant_is_found_once() {
    let stage = Stage::memory().await;
    taken_and_reset(&stage).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    assert_eq!(client.take("k", "v").await, NULL);
}

#[tokio::test]
async fn the_grant_is_found_again_if_the_reply_to_the_retry_was_lost() {
    let stage = Stage::memory().await;
    taken_and_reset(&stage).await;
    taken_and_reset(&stage).await;
    assert_eq!(stage.client().await.take("k", "v").await, ok());
}

#[tokio::test(start_paused = true)]
async fn the_grant_is_found_for_10_seconds() {
    let stage = Stage::memory().await;
    taken_and_reset(&stage).await;
    advance(Duration::from_millis(9_900)).await;
    assert_eq!(stage.client().await.take("k", "v").await, ok());
}

#[tokio::test(start_paused = true)]
async fn the_grant_is_not_found_after_10_seconds() {
    let stage = Stage::memory().await;
    taken_and_reset(&stage).await;
    advance(Duration::from_millis(10_100)).await;
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_has_ended_meanwhile_is_not_found() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send(&request(&["SET", "k", "v", "NX", "PX", "1000"])).await;
    client.readable().await;
    client.reset();
    stage.settled().await;
    advance(Duration::from_millis(1_100)).await;
    let mut other = stage.client().await;
    assert_eq!(other.take("k", "w").await, ok());
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}

#[tokio::test]
async fn a_script_that_took_the_lock_finds_it_as_its_own_after_any_end() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.eval(SPRING_OBTAIN, "k", &["v", "60000"]).await;
    drop(client);
    stage.settled().await;
    let again = stage.client().await.eval(SPRING_OBTAIN, "k", &["v", "60000"]).await;
    assert_eq!(again, crate::client::int(1));
}

#[tokio::test(start_paused = true)]
async fn a_reply_counts_as_read_after_5_seconds() {
    let stage = Stage::memory().await;
    let client = taken_unread(&stage).await;
    advance(Duration::from_millis(5_100)).await;
    client.reset();
    stage.settled().await;
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}
