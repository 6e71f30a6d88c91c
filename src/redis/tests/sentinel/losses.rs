//! What asynchronous replication loses, and what it does not.

use super::*;

/// Makes the replicas miss what comes next.
fn cut_replicas_off(deployment: &Deployment) {
    for replica in &deployment.servers[1..] {
        // It keeps its data, and follows a server that is not there.
        let () = ask(&mut replica.connect(), &["REPLICAOF", "127.0.0.1", "1"]);
    }
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn the_holder_of_a_grant_that_was_lost_is_told_and_the_next_has_a_greater_token() {
    let mut deployment = Deployment::start();
    let store = deployment.open().await;
    cut_replicas_off(&deployment);
    let lost = take(&store, "r", MINUTE).await;
    deployment.first().kill();
    let new = deployment.failed_over().await;
    followed(new, 1).await;
    let answer = store.renew(renewal(&lost, "r", MINUTE)).await;
    assert!(matches!(answer, Err(LockError::NotFound { held: false })), "{answer:?}");
    let next = take(&store, "r", MINUTE).await;
    assert!(next.token > lost.token);
    let answer = store.unlock(unlock(&lost, "r")).await;
    assert!(matches!(answer, Err(LockError::NotFound { held: true })), "{answer:?}");
    store.unlock(unlock(&next, "r")).await.unwrap();
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn waiters_whose_places_were_lost_enter_again() {
    let mut deployment = Deployment::start();
    let store = deployment.open().await;
    let held = take(&store, "r", MINUTE).await;
    deployment.catch_up();
    cut_replicas_off(&deployment);
    let waiter = wait(&store, "r", MINUTE);
    let mut connection = deployment.first().connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    deployment.first().kill();
    let new = deployment.failed_over().await;
    let mut connection = new.connect();
    until("queued again", || waiting(&mut connection, "r") == 1).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(waiter).await.unwrap().unwrap();
}

/// Only leasehold still reaches the master: Sentinels and replicas must know a password now.
fn isolate(master: &RedisServer) {
    let mut connection = master.connect();
    let clients: String = ask(&mut connection, &["CLIENT", "LIST"]);
    let () = ask(&mut connection, &["CONFIG", "SET", "requirepass", "secret"]);
    for client in clients.lines() {
        let field = |name: &str| {
            client.split(' ').find_map(|pair| pair.strip_prefix(name)).unwrap().to_owned()
        };
        let is_sentinel = field("name=").starts_with("sentinel-");
        // `S` is a replica.
        if is_sentinel || field("flags=").contains('S') {
            let _: redis::RedisResult<i64> = redis::cmd("CLIENT")
                .arg("KILL")
                .arg("ID")
                .arg(field("id="))
                .query(&mut connection);
        }
    }
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_master_without_replicas_that_must_have_some_grants_nothing() {
    let demanding = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"];
    let deployment = Deployment::start_with(&demanding);
    let store = deployment.open_with(&[("operationTimeout", "10s")]).await;
    take(&store, "before", MINUTE).await;
    deployment.catch_up();
    isolate(&deployment.servers[0]);
    let mut connection =
        redis::Client::open(format!("redis://:secret@{}", deployment.servers[0].address()))
            .unwrap()
            .get_connection()
            .unwrap();
    until("it refuses", || {
        let set: redis::RedisResult<String> =
            redis::cmd("SET").arg("x").arg("1").query(&mut connection);
        set.is_err_and(|error| error.code() == Some("NOREPLICAS"))
    })
    .await;
    // It is asked again until there is another master.
    let granted = take(&store, "r", MINUTE).await;
    let new = deployment.failed_over().await;
    assert_eq!(ask::<String>(&mut new.connect(), &["GET", "r"]), granted.lock_id.as_str());
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r"]), 0);
}

/// This is what the warning at Init is about.
#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_master_that_is_cut_off_grants_until_the_next_is_known_and_fencing_orders_them() {
    let deployment = Deployment::start();
    let store = deployment.open().await;
    deployment.catch_up();
    isolate(&deployment.servers[0]);
    let lost = take(&store, "r", MINUTE).await;
    let new = deployment.failed_over().await;
    followed(new, 1).await;
    let next = take(&store, "r", MINUTE).await;
    assert!(next.token > lost.token);
    let answer = store.renew(renewal(&lost, "r", MINUTE)).await;
    assert!(matches!(answer, Err(LockError::NotFound { held: true })), "{answer:?}");
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn the_built_in_lock_and_this_one_exclude_each_other_across_a_failover() {
    let deployment = Deployment::start();
    let store = deployment.open().await;
    let own = take(&store, "own", MINUTE).await;
    let set = |connection: &mut redis::Connection, key: &str| {
        ask::<Option<String>>(connection, &["SET", key, "owner", "NX", "PX", "60000"]).is_some()
    };
    let mut connection = deployment.servers[0].connect();
    assert!(set(&mut connection, "theirs") && !set(&mut connection, "own"));
    deployment.catch_up();
    let new = deployment.at(deployment.sentinels.fail_over());
    followed(new, 1).await;
    let refused = store.try_lock(request("theirs", MINUTE)).await;
    assert!(matches!(refused, Err(LockError::Locked { .. })), "{refused:?}");
    let mut connection = new.connect();
    assert!(!set(&mut connection, "own"));
    store.unlock(unlock(&own, "own")).await.unwrap();
    assert!(set(&mut connection, "own"));
    let _: i64 = ask(&mut connection, &["DEL", "theirs"]);
    take(&store, "theirs", MINUTE).await;
}
