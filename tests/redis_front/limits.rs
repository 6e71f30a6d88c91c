//! The limits of a front.

use std::process::Command;

use leasehold_testkit::wait::eventually;

use crate::{
    client::{PATIENCE, Value, bulk, request},
    stage::Stage,
};

#[tokio::test]
async fn a_request_has_at_most_64_arguments() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let words = |count: usize| [vec!["INFO"], vec!["none"; count - 1]].concat();
    assert_eq!(client.ask(&words(64)).await, bulk(""));
    client.send(&request(&words(65))).await;
    assert!(client.ended().await.contains("more than 64 arguments"));
}

#[tokio::test]
async fn a_command_has_at_most_16_keys() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let words = |count: usize| [vec!["EXISTS"], vec!["k"; count]].concat();
    assert_eq!(client.ask(&words(16)).await, Value::Integer(0));
    let refused = format!("{:?}", client.ask(&words(17)).await);
    assert!(refused.contains("more than 16 keys"), "{refused}");
}

#[tokio::test]
async fn a_request_has_at_most_64_kib() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let message = "x".repeat(65_000);
    assert_eq!(client.ask(&["ECHO", &message]).await, bulk(&message));
    client.send(&request(&["ECHO", &"x".repeat(65_536)])[..100]).await;
    let reply = client.ended().await;
    assert!(reply.contains("more than 65536 bytes"), "{reply}");
}

#[tokio::test]
async fn a_line_has_at_most_1024_bytes() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send("ECHO ".repeat(300).as_bytes()).await;
    assert!(client.ended().await.contains("a line has more than 1024 bytes"));
}

/// Raises what this process may open.
fn allow_descriptors(count: usize) {
    let arguments = [format!("--pid={}", std::process::id()), format!("--nofile={count}:")];
    let raised = Command::new("prlimit").args(arguments).status();
    assert!(raised.is_ok_and(|status| status.success()), "ulimit -Hn is below {count}");
}

#[tokio::test]
async fn a_connection_above_the_limit_is_refused_until_another_one_ends() {
    const LIMIT: usize = 4096;
    // Both ends are in this process, which keeps a reserve for backends, and other tests run
    // at the same time.
    allow_descriptors(3 * LIMIT);
    let stage = Stage::memory().await;
    let mut all = Vec::new();
    for _ in 0..LIMIT {
        let mut client = stage.client().await;
        assert_eq!(client.ask(&["PING"]).await, Value::Simple("PONG".into()));
        all.push(client);
    }
    let reply = stage.client().await.ended().await;
    assert_eq!(reply, "-ERR max number of clients reached\r\n");
    assert_eq!(all[0].ask(&["PING"]).await, Value::Simple("PONG".into()));
    drop(all);
    eventually(PATIENCE, "a further connection is served", async || {
        Ok(stage.client().await.try_ask(&["PING"]).await?)
    })
    .await
    .unwrap();
}
