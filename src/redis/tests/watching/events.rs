//! The events of a watch.

use super::*;
use crate::inspection::spoil;

#[tokio::test]
async fn events_add_up_to_a_list() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    take(&here, "elsewhere", MINUTE).await;
    let mut dice = Dice(7);
    change_at_random([&here, &there], &mut dice, 100).await;
    let mut of_all = Table::synced(&here, everything()).await;
    let mut of_some = Table::synced(&there, Scope::prefix("r/1")).await;
    for _ in 0..3 {
        change_at_random([&here, &there], &mut dice, 300).await;
        of_all.until_listed(&here, "").await;
        of_some.until_listed(&here, "r/1").await;
    }
    assert!(of_all.held.contains_key("elsewhere"));
    assert_eq!((of_all.restarts, of_some.restarts), (0, 0));
}

#[tokio::test]
async fn a_newcomer_gets_all_states_before_it_is_synced() {
    let server = RedisServer::start();
    let (store, other) = (open(&server).await, open(&server).await);
    let _single = Table::synced(&store, only("a")).await;
    take(&other, "b/1", MINUTE).await;
    let _scope = Table::synced(&store, Scope::prefix("b/")).await;
    // Each wider than the one before, or the same.
    for (at, prefix) in ["b/", "b", "", ""].into_iter().enumerate() {
        take(&other, &format!("b/new/{at}"), MINUTE).await;
        let table = Table::synced(&store, Scope::prefix(prefix)).await;
        assert_eq!(table.held.len(), 2 + at, "{prefix}: {:?}", table.held);
    }
    take(&other, "c", MINUTE).await;
    assert_eq!(Table::synced(&store, only("c")).await.held.len(), 1);
}

#[tokio::test]
async fn more_locks_than_a_script_reads_are_reported() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for number in 0..300 {
        take(&store, &format!("r/{number}"), MINUTE).await;
    }
    let of_all = Table::synced(&store, everything()).await;
    assert_eq!(of_all.held, listed(&store, "").await);
    let mut of_each = Vec::new();
    for number in 0..100 {
        of_each.push(Table::of(&store, only(&format!("r/{number}"))));
    }
    for mut table in of_each {
        table.until("synced", |table| table.synced).await;
        assert_eq!(table.held.len(), 1);
    }
}

#[tokio::test]
async fn a_lock_that_leasehold_did_not_make_is_not_reported() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let () = ask(&mut server.connect(), &["SET", "r", "owner", "EX", "60"]);
    assert!(Table::synced(&store, only("r")).await.held.is_empty());
    assert!(Table::synced(&store, everything()).await.held.is_empty());
}

#[tokio::test]
async fn a_lock_that_somebody_overwrote_is_reported_as_free() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut of_one = Table::synced(&store, only("r")).await;
    let mut of_all = Table::synced(&store, everything()).await;
    // In one step, so that it is never seen free.
    let () = ask(&mut server.connect(), &["SET", "r", "owner", "EX", "60"]);
    for table in [&mut of_one, &mut of_all] {
        table.until("free", |table| table.held.is_empty()).await;
        assert_eq!(table.grants_total, 0);
    }
}

/// The watches of all resources once failed repeatedly, without an event.
#[tokio::test]
async fn a_resource_whose_keys_somebody_else_wrote_does_not_stop_watches() {
    let server = RedisServer::start();
    let store = open(&server).await;
    spoil(&server);
    take(&store, "r/3", MINUTE).await;
    for name in ["r/1", "r/2"] {
        assert!(Table::synced(&store, only(name)).await.held.is_empty(), "{name}");
    }
    let mut of_all = Table::synced(&store, everything()).await;
    assert_eq!((of_all.held.len(), of_all.restarts), (1, 0));
    take(&store, "r/4", MINUTE).await;
    of_all.until("r/4", |table| table.held.contains_key("r/4")).await;
}

#[tokio::test]
async fn a_user_that_may_not_search_gets_that_as_the_reason() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-scan"];
    let () = ask(&mut server.connect(), &user);
    let store = open_with(&server, &[("redisUsername", "u"), ("redisPassword", "p")]).await;
    let watched = soon(store.watch(everything()).unwrap().next()).await;
    let page = PageRequest::first(1);
    let listing = Listing { scope: everything(), holder_prefix: String::new(), page };
    let listed = store.list(&listing).await.map(|_| ());
    for answer in [watched.map(|_| ()), listed] {
        let Err(LockError::Unsupported(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("docs/redis.md"), "{why}");
    }
    Table::synced(&store, only("r")).await;
}
