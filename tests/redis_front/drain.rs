//! The end of a front.

use std::time::Duration;

use anyhow::ensure;
use leasehold_testkit::{process::Signal, wait::eventually};
use tokio::{
    join,
    net::TcpStream,
    time::{Instant, resume, sleep},
};

use crate::{
    binary::Binary,
    client::{PATIENCE, int, ok, request},
    scripts::DAPRD_UNLOCK,
    stage::Stage,
};

/// A moment of paused time, in which a drain begins.
const MOMENT: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_new_locks_and_serves_renewals_and_unlocks() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    join!(stage.front.drain(), async {
        sleep(MOMENT).await;
        let reply = client.take("other", "v").await.error();
        assert!(reply.starts_with("ERR leasehold: SHUTTING_DOWN: "), "{reply}");
        assert_eq!(client.ask(&["SET", "k", "v", "XX", "PX", "60000"]).await, ok());
        assert_eq!(client.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(1));
    });
}

#[tokio::test(start_paused = true)]
async fn unlocks_are_served_in_a_drain_for_as_long_as_they_keep_coming() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for key in ["a", "b", "c"] {
        client.take(key, "v").await;
    }
    join!(stage.front.drain(), async {
        for key in ["a", "b", "c"] {
            sleep(Duration::from_millis(900)).await;
            assert_eq!(client.eval(DAPRD_UNLOCK, key, &["v"]).await, int(1));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_though_unlocks_keep_coming() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let unlock = ["EVAL", DAPRD_UNLOCK, "1", "k", "v"];
    let began = Instant::now();
    join!(stage.front.drain(), async {
        while client.try_ask(&unlock).await.is_ok() {
            sleep(Duration::from_millis(500)).await;
        }
    });
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_script_takes_no_lock_in_a_drain() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.ask(&["PING"]).await;
    join!(stage.front.drain(), async {
        sleep(MOMENT).await;
        let reply = client.eval(crate::scripts::SPRING_OBTAIN, "k", &["v", "60000"]).await;
        assert!(reply.error().contains("SHUTTING_DOWN"));
    });
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_a_drain_idle_connections_are_closed_and_nobody_listens() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.ask(&["PING"]).await;
    let address = stage.address;
    stage.front.drain().await;
    assert_eq!(client.ended().await, "");
    // A program that another thread starts listens, too, until it is executed.
    resume();
    eventually(PATIENCE, "nobody listens", async || {
        ensure!(TcpStream::connect(address).await.is_err(), "connected");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_request_does_not_delay_a_drain() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send(&request(&["PING"])[..5]).await;
    stage.settled().await;
    let drained = tokio::time::timeout(Duration::from_secs(60), stage.front.drain()).await;
    assert!(drained.is_ok());
}

#[tokio::test]
async fn sigterm_ends_the_command_with_0() {
    let mut front = Binary::memory(&[]).await;
    let mut client = front.client().await;
    client.take("k", "v").await;
    front.process.signal(Signal::TERM);
    assert_eq!(front.process.exited().code(), Some(0));
    assert_eq!(client.ended().await, "");
}
