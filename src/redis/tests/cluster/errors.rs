//! What Init says of wrong servers.

use leasehold_lock::inspect::{Listing, PageRequest, Scope};

use super::*;

#[tokio::test]
async fn the_mode_of_a_server_must_be_that_of_the_component() {
    let (alone, cluster) = (RedisServer::start(), RedisCluster::start(1, 0));
    let refused = clustered(&alone.address(), &[]).await.err().unwrap().to_string();
    assert!(
        refused.contains("redisType") && refused.contains("not in cluster mode"),
        "{refused}"
    );
    let refused = try_open(&cluster.list(), &[]).await.err().unwrap().to_string();
    assert!(refused.contains("redisType: cluster"), "{refused}");
}

#[tokio::test]
async fn a_shared_lock_is_refused_with_the_reason_and_the_stores_that_have_it() {
    let cluster = RedisCluster::start(1, 0);
    let store = open_cluster(&cluster).await;
    let mode = leasehold_lock::Mode::Shared;
    let refused = store.try_lock(AcquireRequest { mode, ..request("r", MINUTE) }).await;
    let Err(LockError::Unsupported(why)) = refused else { panic!("not refused") };
    assert!(why.contains("Redis Cluster") && why.contains("lock.etcd"), "{why}");
    assert!(!store.features().contains(&leasehold_lock::Feature::Shared));
}

#[tokio::test]
async fn a_cluster_without_slots_is_unavailable() {
    let setup = leasehold_testkit::redis::RedisSetup {
        arguments: ["--cluster-enabled", "yes"].map(Into::into).to_vec(),
        ..Default::default()
    };
    let server = RedisServer::launch(&setup).unwrap();
    let refused = clustered(&server.address(), &[]).await;
    assert!(matches!(refused, Err(LockError::StoreUnavailable(_))), "{:?}", refused.err());
}

#[tokio::test]
async fn wrong_credentials_are_refused() {
    let cluster = RedisCluster::start(1, 0);
    let user = [("redisUsername", "me"), ("redisPassword", "wrong")];
    let refused = clustered(&cluster.list(), &user).await.err().unwrap();
    assert!(refused.to_string().contains("redisPassword"), "{refused}");
}

#[tokio::test]
async fn the_documented_permissions_suffice_on_every_node() {
    let cluster = RedisCluster::start(2, 0);
    for node in &cluster.nodes {
        outages::add_documented_user(&mut node.connect(), true);
    }
    let user = [("redisUsername", "leasehold"), ("redisPassword", "password")];
    let store = clustered(&cluster.list(), &user).await.unwrap();
    for master in 0..2 {
        let name = name_at(&cluster, master);
        let held = take(&store, &name, MINUTE).await;
        let waits = wait(&store, &name, MINUTE);
        until("queued", || waiting_at(&cluster, master, &name) == 1).await;
        cluster.open_slot(slot(&name), master, 1 - master);
        cluster.move_these_keys(&[&name, &key('h', &name)], master, 1 - master);
        store.renew(renewal(&held, &name, MINUTE)).await.unwrap();
        let listing = Listing {
            scope: Scope::prefix(""),
            holder_prefix: String::new(),
            page: PageRequest::first(9),
        };
        store.list(&listing).await.unwrap();
        cluster.move_keys(slot(&name), master, 1 - master);
        cluster.close_slot(slot(&name), 1 - master);
        store.unlock(unlock(&held, &name)).await.unwrap();
        soon(waits).await.unwrap().unwrap();
    }
    for node in &cluster.nodes {
        let denied: Vec<redis::Value> = ask(&mut node.connect(), &["ACL", "LOG"]);
        assert!(denied.is_empty(), "{denied:?}");
    }
}
