//! How long a front waits, in paused time.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use crate::{
    client::{Client, ok, request},
    stage::{Backend, Setup, Stage},
};

const INSTANT: Duration = Duration::from_millis(200);

/// Asserts that the connection ends after `limit` from now.
async fn ends_after(client: &mut Client, limit: Duration) {
    let mut byte = [0];
    let early = timeout(limit - INSTANT, client.stream.read(&mut byte)).await;
    assert!(early.is_err(), "too early: {early:?}");
    let ended = timeout(2 * INSTANT, client.stream.read(&mut byte)).await;
    assert_eq!(ended.expect("it is still connected").unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_finished_in_10_seconds_ends_the_connection() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send(&request(&["SET", "k", "v", "NX", "PX", "60000"])[..30]).await;
    ends_after(&mut client, Duration::from_secs(10)).await;
}

#[tokio::test(start_paused = true)]
async fn the_10_seconds_begin_with_the_first_byte_of_the_request() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let request = request(&["SET", "k", "v", "NX", "PX", "60000"]);
    for byte in &request[..9] {
        client.send(&[*byte]).await;
        sleep(Duration::from_secs(1)).await;
    }
    ends_after(&mut client, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_password_is_disconnected_after_10_seconds() {
    let setup = Setup { password: Some("secret"), ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut client = stage.client().await;
    for _ in 0..9 {
        assert!(client.ask(&["PING"]).await.error().starts_with("NOAUTH"));
        sleep(Duration::from_secs(1)).await;
    }
    ends_after(&mut client, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_with_the_password_may_be_silent_for_an_hour() {
    let setup = Setup { password: Some("secret"), ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(&["AUTH", "secret"]).await, ok());
    ends_after(&mut client, Duration::from_secs(3600)).await;
}

#[tokio::test(start_paused = true)]
async fn each_request_begins_the_hour_again() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for _ in 0..3 {
        sleep(Duration::from_secs(3000)).await;
        client.ask(&["PING"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_replies_is_disconnected_and_others_are_served() {
    let stage = Stage::memory().await;
    let client = stage.client().await;
    let echo = request(&["ECHO", &"x".repeat(60_000)]);
    let (reading, mut writing) = client.stream.into_split();
    let begun = Instant::now();
    let writing = tokio::spawn(async move { while writing.write_all(&echo).await.is_ok() {} });
    sleep(Duration::from_secs(1)).await;
    stage.client().await.ask(&["PING"]).await;
    assert!(!writing.is_finished());
    timeout(Duration::from_secs(60), writing).await.expect("it is still connected").unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(reading);
}
