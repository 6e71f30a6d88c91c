//! The events of a watch after the loss of connections, data, or a master.

use super::*;

/// Trap: redis 6
#[tokio::test]
async fn events_add_up_to_a_list_though_the_connection_is_cut() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let watching = try_open(proxy.address(), &[]).await.unwrap();
    let (here, there) = (open(&server).await, open(&server).await);
    let mut dice = Dice(11);
    let mut table = Table::synced(&watching, everything()).await;
    for cut in 1..=3 {
        change_at_random([&here, &there], &mut dice, 100).await;
        proxy.cut();
        change_at_random([&here, &there], &mut dice, 100).await;
        table.until("a restart", |table| table.restarts == cut).await;
        table.until_listed(&here, "").await;
    }
    assert_eq!(table.restarts, 3);
}

#[tokio::test]
async fn a_holder_that_went_during_an_outage_is_not_left() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (watching, other) =
        (try_open(proxy.address(), &[]).await.unwrap(), open(&server).await);
    let gone = take(&other, "gone", MINUTE).await;
    take(&other, "stays", MINUTE).await;
    let mut of_all = Table::synced(&watching, everything()).await;
    let mut of_one = Table::synced(&watching, only("gone")).await;
    assert_eq!(of_one.held.len(), 1);
    proxy.refuse(true);
    proxy.cut();
    of_all.until("a restart", |table| table.restarts == 1).await;
    other.unlock(unlock(&gone, "gone")).await.unwrap();
    proxy.refuse(false);
    of_all.until_listed(&other, "").await;
    of_one.until("all again", |table| table.restarts == 1 && table.synced).await;
    assert!(of_all.held.contains_key("stays"));
    assert!(of_one.held.is_empty());
    assert_eq!(of_all.restarts, 1, "an outage is reported once");
}

/// Trap: redis 6
#[tokio::test]
async fn nothing_is_held_after_all_data_were_deleted() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for name in ["a", "b"] {
        take(&store, name, MINUTE).await;
    }
    let reader = AcquireRequest { mode: Mode::Shared, ..request("c", MINUTE) };
    store.try_lock(reader).await.unwrap().receipt.accept();
    let mut of_all = Table::synced(&store, everything()).await;
    let mut of_one = Table::synced(&store, only("c")).await;
    assert_eq!((of_all.held.len(), of_one.held.len()), (3, 1));
    let () = ask(&mut server.connect(), &["FLUSHALL"]);
    take(&store, "d", MINUTE).await;
    of_all.until_listed(&store, "").await;
    of_one.until("free", |table| table.held.is_empty()).await;
    assert_eq!(of_all.held.len(), 1);
}

/// Trap: redis 46
#[tokio::test]
async fn the_holders_of_a_lost_master_are_forgotten_with_it() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    take(&store, "r", MINUTE).await;
    let mut table = Table::synced(&store, everything()).await;
    assert_eq!(table.held.len(), 1);
    fixed.lead_to(new.address());
    // The connections to it stay.
    let () = ask(&mut old.connect(), &["REPLICAOF", "127.0.0.1", "1"]);
    table.until("a restart", |table| table.restarts > 0).await;
    table.until("all again", |table| table.synced).await;
    assert!(table.held.is_empty(), "{:?}", table.held);
}

/// Trap: redis 46
#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_watch_follows_the_master_that_sentinels_name() {
    let deployment = super::super::sentinel::Deployment::start();
    let store = deployment.open().await;
    take(&store, "r", MINUTE).await;
    deployment.catch_up();
    let mut table = Table::synced(&store, everything()).await;
    let new = deployment.at(deployment.sentinels.fail_over());
    table.until("a restart", |table| table.restarts > 0).await;
    table.until("all again", |table| table.synced).await;
    assert_eq!(table.held.len(), 1);
    // The former master goes on as one, and knows nothing of this.
    take(&open(new).await, "s", MINUTE).await;
    table.until("what is new", |table| table.held.len() == 2).await;
}
