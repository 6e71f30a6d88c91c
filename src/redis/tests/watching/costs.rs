//! The cost of watches: connections, and commands by name.

use super::{
    super::costs::{executed, expected, reset},
    *,
};

fn connections(connection: &mut redis::Connection) -> usize {
    let clients: String = ask(connection, &["CLIENT", "LIST"]);
    clients.lines().count()
}

#[tokio::test]
async fn a_hundred_watches_cost_one_connection_and_one_poller() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let before = connections(&mut connection);
    let mut tables: Vec<_> = (0..100).map(|_| Table::of(&store, everything())).collect();
    for table in &mut tables {
        table.until("synced", |table| table.synced).await;
    }
    assert_eq!(connections(&mut connection), before + 1);
    reset(&mut connection);
    take(&store, "r", MINUTE).await;
    for table in &mut tables {
        table.until("the grant", |table| table.held.len() == 1).await;
    }
    // One every two seconds, so that even in half a minute there are not so many.
    let searches = executed(&mut connection)["scan"];
    assert!(searches < tables.len() as u64, "{searches} searches");
}

#[tokio::test]
async fn the_poller_ends_with_the_last_watch() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let before = connections(&mut connection);
    let first = Table::synced(&store, everything()).await;
    let mut second = Table::synced(&store, only("r")).await;
    drop(first);
    take(&store, "r", MINUTE).await;
    second.until("the grant", |table| table.held.len() == 1).await;
    assert_eq!(connections(&mut connection), before + 1);
    drop(second);
    until("the poller has gone", || connections(&mut connection) == before).await;
}

#[tokio::test]
async fn nothing_is_searched_for_while_single_resources_are_watched_alone() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut table = Table::synced(&store, only("r")).await;
    drop(Table::synced(&store, everything()).await);
    take(&store, "r", MINUTE).await;
    table.until("the grant", |table| table.held.len() == 1).await;
    reset(&mut connection);
    for at in 0..3 {
        store.unlock(force("r")).await.unwrap();
        table.until("free", |table| table.held.is_empty()).await;
        take(&store, "r", MINUTE).await;
        table.until("the grant", |table| table.held.len() == 1).await;
        assert_eq!(executed(&mut connection).get("scan"), None, "in round {at}");
    }
}

#[tokio::test]
async fn a_watch_adds_nothing_to_a_lock() {
    let server = RedisServer::start();
    let (store, watching) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    let _single = Table::synced(&watching, only("other")).await;
    reset(&mut connection);
    let mut table = Table::synced(&watching, everything()).await;
    // The commands of the poller alone.
    let polling: BTreeSet<_> = executed(&mut connection).into_keys().collect();
    assert!(polling.contains("scan"), "{polling:?}");
    reset(&mut connection);
    let granted = take(&store, "r", MINUTE).await;
    store.unlock(unlock(&granted, "r")).await.unwrap();
    take(&store, "last", MINUTE).await;
    table.until("the last grant", |table| table.held.contains_key("last")).await;
    let spent: BTreeMap<_, _> = executed(&mut connection)
        .into_iter()
        .filter(|(name, _)| !polling.contains(name))
        .collect();
    // Two locks and an unlock.
    for (name, calls) in [("set", 4), ("getset", 2), ("zpopmin", 1)] {
        assert_eq!(spent.get(name), Some(&calls), "{name} in {spent:?}");
    }
}

/// Waits for that many readings of a poller, and returns what each of them costs.
async fn cost_of_a_reading(
    connection: &mut redis::Connection,
    readings: u64,
) -> BTreeMap<String, u64> {
    reset(connection);
    let mut spent = BTreeMap::new();
    until("enough readings", || {
        spent = executed(connection);
        spent.get("fcall").is_some_and(|calls| *calls >= readings)
    })
    .await;
    let readings = spent["fcall"];
    // The check of the connection for the locks.
    for name in ["hello", "publish"] {
        spent.remove(name);
    }
    spent.into_iter().map(|(name, calls)| (name, calls / readings)).collect()
}

#[tokio::test]
async fn to_read_a_resource_costs_five_commands_and_a_free_one_four() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _table = Table::synced(&store, only("r")).await;
    let free = [("fcall", 1), ("mget", 1), ("zcard", 1), ("pttl", 1)];
    assert_eq!(cost_of_a_reading(&mut connection, 2).await, expected(&free));
    take(&store, "r", MINUTE).await;
    let held = [("fcall", 1), ("mget", 1), ("zcard", 1), ("pttl", 2)];
    // A reading in which a millisecond passes between the two asks for the first once more.
    assert_eq!(cost_of_a_reading(&mut connection, 5).await, expected(&held));
}
