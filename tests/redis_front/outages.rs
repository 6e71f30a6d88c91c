//! A store with an unreachable server.

use std::time::Duration;

use leasehold_testkit::wait::eventually;
use tokio::time::timeout;

use crate::{
    client::{Client, PATIENCE, ok},
    stage::{Backend, Server, Setup, Stage},
};

/// Ten times the operation timeout that the stores here have.
const SOON: Duration = Duration::from_secs(10);

async fn stage(backend: Backend) -> Stage {
    let properties = vec![("operationTimeout", "1s")];
    Stage::with(backend, Setup { properties, ..Setup::default() }).await
}

async fn fails(client: &mut Client) {
    for words in [
        &["SET", "k", "v", "NX", "PX", "60000"] as &[&str],
        &["GET", "k"],
        &["EVAL", crate::scripts::RELEASE, "1", "k", "v"],
    ] {
        let reply = timeout(SOON, client.ask(words)).await.expect("no answer").error();
        let is_clear = ["STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"]
            .iter()
            .any(|reason| reply.starts_with(&format!("ERR leasehold: {reason}: ")));
        assert!(is_clear, "{words:?}: {reply}");
    }
}

async fn is_served_again(client: &mut Client) {
    eventually(PATIENCE, "locks are taken again", async || {
        let answer = client.take("again", "v").await;
        anyhow::ensure!(answer == ok(), "{answer:?}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn while_redis_is_stopped_commands_fail_and_afterwards_they_are_served() {
    let mut stage = stage(Backend::Redis).await;
    let mut client = stage.client().await;
    let Server::Redis(server) = &mut stage.server else { unreachable!() };
    server.process.kill();
    fails(&mut client).await;
    server.restart();
    is_served_again(&mut client).await;
}

#[tokio::test]
async fn while_redis_is_suspended_commands_fail_and_afterwards_they_are_served() {
    let stage = stage(Backend::Redis).await;
    let mut client = stage.client().await;
    let Server::Redis(server) = &stage.server else { unreachable!() };
    server.process.suspend().unwrap();
    fails(&mut client).await;
    server.process.resume().unwrap();
    is_served_again(&mut client).await;
}

#[tokio::test]
async fn while_etcd_is_stopped_commands_fail_and_afterwards_they_are_served() {
    let mut stage = stage(Backend::Etcd).await;
    let mut client = stage.client().await;
    let Server::Etcd(server) = &mut stage.server else { unreachable!() };
    server.kill();
    fails(&mut client).await;
    server.restart();
    is_served_again(&mut client).await;
}

#[tokio::test]
async fn while_etcd_is_suspended_commands_fail_and_afterwards_they_are_served() {
    let stage = stage(Backend::Etcd).await;
    let mut client = stage.client().await;
    let Server::Etcd(server) = &stage.server else { unreachable!() };
    server.pause();
    fails(&mut client).await;
    server.resume();
    is_served_again(&mut client).await;
}

#[tokio::test]
async fn commands_that_need_no_store_are_served_without_it() {
    let mut stage = stage(Backend::Redis).await;
    let Server::Redis(server) = &mut stage.server else { unreachable!() };
    server.process.kill();
    let mut client = stage.client().await;
    assert!(client.ask(&["INFO", "server"]).await.text().contains("redis_version"));
    client.ask(&["PING"]).await;
}
