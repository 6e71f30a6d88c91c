//! What Init says of wrong servers.

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
