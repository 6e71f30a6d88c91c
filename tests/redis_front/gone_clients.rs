//! Clients that go away while the store has not answered yet.

use std::time::Duration;

use leasehold_testkit::{
    proxy::{Conduct, Flow},
    wait::eventually,
};

use crate::{
    client::{PATIENCE, int, ok, request},
    scripts::DAPRD_UNLOCK,
    stage::{Backend, Server, Stage, becomes},
};

const TRIES_MAX: usize = 10;

/// Whether the server has the lock of `k`, independent of the front.
async fn server_has_it(stage: &Stage) -> bool {
    match &stage.server {
        Server::None => unreachable!("memory always answers"),
        Server::Redis(server) => {
            let mut exists = redis::cmd("EXISTS");
            exists.arg("k").query(&mut server.connect()).unwrap()
        }
        Server::Etcd(server) => {
            let found = server.client().await.get("/t/r/k/h", None).await.unwrap();
            found.count() == 1
        }
    }
}

async fn a_lock_of_a_client_that_has_gone_is_released(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    // The lock is taken without an answer. On etcd, that is one call only if a lease of an
    // earlier lock is free.
    for _ in 0..TRIES_MAX {
        stage.proxy().set(Conduct { replies: Flow::Stall, ..Conduct::default() });
        client.send(&request(&["SET", "k", "v", "NX", "PX", "600000"])).await;
        let taken = eventually(Duration::from_secs(3), "the server has the lock", async || {
            anyhow::ensure!(server_has_it(&stage).await);
            Ok(())
        });
        if taken.await.is_ok() {
            break;
        }
        stage.proxy().heal();
        client.reply().await;
        client.eval(DAPRD_UNLOCK, "k", &["v"]).await;
    }
    assert!(server_has_it(&stage).await);
    drop(client);
    stage.settled().await;
    stage.proxy().heal();
    eventually(PATIENCE, "nothing is held", async || {
        anyhow::ensure!(!server_has_it(&stage).await);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(stage.client().await.take("k", "w").await, ok());
}

async fn an_unlock_of_a_client_that_has_gone_is_carried_out(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    assert_eq!(client.take("k", "v").await, ok());
    stage.proxy().set(Conduct::stalled());
    client.send(&request(&["EVAL", DAPRD_UNLOCK, "1", "k", "v"])).await;
    stage.settled().await;
    drop(client);
    stage.settled().await;
    assert!(server_has_it(&stage).await);
    stage.proxy().heal();
    let mut other = stage.client().await;
    becomes(&mut other, &["EXISTS", "k"], int(0)).await;
    assert_eq!(other.eval(DAPRD_UNLOCK, "k", &["v"]).await, int(-1));
}

#[tokio::test]
async fn a_lock_in_redis_of_a_client_that_has_gone_is_released() {
    a_lock_of_a_client_that_has_gone_is_released(Backend::Redis).await;
}

#[tokio::test]
async fn a_lock_in_etcd_of_a_client_that_has_gone_is_released() {
    a_lock_of_a_client_that_has_gone_is_released(Backend::Etcd).await;
}

#[tokio::test]
async fn an_unlock_in_redis_of_a_client_that_has_gone_is_carried_out() {
    an_unlock_of_a_client_that_has_gone_is_carried_out(Backend::Redis).await;
}

#[tokio::test]
async fn an_unlock_in_etcd_of_a_client_that_has_gone_is_carried_out() {
    an_unlock_of_a_client_that_has_gone_is_carried_out(Backend::Etcd).await;
}
