//! Masters that die or are cut off.

use leasehold_testkit::{ports::free_port, proxy::Conduct, redis::RedisSetup};

use super::{super::scene::Scene, *};

async fn begin(cluster: &RedisCluster) -> Scene {
    let stores = [open_cluster(cluster).await, open_cluster(cluster).await];
    Scene::begin(stores, &name_at(cluster, 0), &cluster.nodes[0], 1).await
}

/// Lets the replica of the first master take over.
async fn survives(fail: impl AsyncFnOnce(&mut RedisCluster, &Scene)) {
    let mut cluster = RedisCluster::start(3, 1);
    let scene = begin(&cluster).await;
    fail(&mut cluster, &scene).await;
    promoted(&cluster, 3, 2).await;
    scene.end(&cluster.nodes[3]).await;
}

/// Returns when the replica is a master, and this many stores are connected to it.
pub(super) async fn promoted(cluster: &RedisCluster, replica: usize, stores: usize) {
    until("the replica is promoted", || cluster.is_master(replica)).await;
    let mut connection = cluster.nodes[replica].connect();
    until("the stores follow", || processes(&mut connection).len() == stores).await;
}

#[tokio::test]
async fn a_failover_after_the_masters_death_keeps_the_lock_and_serves_its_waiters() {
    survives(async |cluster, scene| {
        cluster.nodes[0].kill();
        // The others go on.
        let (store, name) = (&scene.stores[0], name_at(cluster, 1));
        let other = take(store, &name, MINUTE).await;
        store.unlock(unlock(&other, &name)).await.unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "cluster: waits for a failover; make test-all runs it"]
async fn a_failover_from_a_suspended_master_keeps_the_lock_and_serves_its_waiters() {
    survives(async |cluster, _| {
        cluster.nodes[0].process.suspend().unwrap();
        until("the replica is promoted", || cluster.is_master(3)).await;
        // What is in its buffers it carries out as a master.
        cluster.nodes[0].process.resume().unwrap();
    })
    .await;
}

#[tokio::test]
#[ignore = "cluster: waits for a failover; make test-all runs it"]
async fn a_failover_by_command_keeps_the_lock_and_serves_its_waiters() {
    survives(async |cluster, _| {
        let mut ordered = None;
        until("the replica is promoted", || {
            // On a slow machine it may be given up.
            if ordered.is_none_or(|at: Instant| at.elapsed() > SECOND * 6) {
                let mut order = redis::cmd("CLUSTER");
                let _ = order.arg("FAILOVER").exec(&mut cluster.nodes[3].connect());
                ordered = Some(Instant::now());
            }
            cluster.is_master(3)
        })
        .await;
    })
    .await;
}

/// The suspended master has received the try, its replica has not: the try is made again once that is
/// promoted.
#[tokio::test]
#[ignore = "cluster: waits for a failover; make test-all runs it"]
async fn a_call_in_flight_at_a_former_master_is_made_at_the_new_one() {
    let cluster = RedisCluster::start(3, 1);
    let store = clustered(&cluster.list(), &[("operationTimeout", "20s")]).await.unwrap();
    let name = name_at(&cluster, 0);
    cluster.nodes[0].process.suspend().unwrap();
    let asked = request(&name, MINUTE);
    let trying = {
        let store = store.clone();
        tokio::spawn(async move { store.try_lock(asked).await })
    };
    let granted = soon(trying).await.unwrap().unwrap();
    granted.receipt.accept();
    assert!(cluster.is_master(3));
    cluster.nodes[0].process.resume().unwrap();
    store.unlock(unlock(&granted, &name)).await.unwrap();
}

#[tokio::test]
#[ignore = "cluster: waits for the nodes; make test-all runs it"]
async fn a_node_is_removed_and_added_again() {
    let cluster = RedisCluster::start(3, 0);
    let (store, other) = (open_cluster(&cluster).await, open_cluster(&cluster).await);
    let names: Vec<_> = (0..3).map(|master| name_at(&cluster, master)).collect();
    let held = take(&store, &names[2], MINUTE).await;
    let waits = wait(&other, &names[2], MINUTE);
    until("queued", || waiting_at(&cluster, 2, &names[2]) == 1).await;
    // This gives the new owner the greatest epoch, so the other slots, which are empty, can follow.
    cluster.move_slot(slot(&names[2]), 2, 0);
    for slot in cluster.share(2).filter(|other| *other != slot(&names[2])) {
        cluster.close_slot(slot, 0);
    }
    let removed = cluster.id(2);
    for node in 0..2 {
        let () = ask(&mut cluster.nodes[node].connect(), &["CLUSTER", "FORGET", &removed]);
    }
    let mut connection = cluster.nodes[2].connect();
    // A master that gives up its last slot follows the one that has it.
    until("it is a replica", || !cluster.is_master(2)).await;
    until("it can be reset", || {
        redis::cmd("CLUSTER").arg("RESET").arg("HARD").exec(&mut connection).is_ok()
    })
    .await;
    until("the stores leave it", || processes(&mut connection).is_empty()).await;
    store.renew(renewal(&held, &names[2], MINUTE)).await.unwrap();
    let () = ask(&mut connection, &["FUNCTION", "FLUSH"]);
    cluster.meet(2);
    cluster.move_slot(slot(&names[2]), 0, 2);
    store.unlock(unlock(&held, &names[2])).await.unwrap();
    let next = soon(waits).await.unwrap().unwrap();
    assert!(next.token > held.token);
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", &names[2]]), 1);
}

/// It still considers itself the master and answers, but its writes reach no other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "cluster: waits for a failover; make test-all runs it"]
async fn a_master_that_is_cut_off_from_the_others_is_left() {
    let bus = free_port();
    let proxy = Proxy::start(format!("127.0.0.1:{bus}")).await;
    let announced = proxy.address().rsplit_once(':').unwrap().1.to_owned();
    let start = move || {
        RedisCluster::start_with(3, 1, |node| {
            let mut setup = RedisSetup::default();
            let ports =
                ["--cluster-port", &bus.to_string(), "--cluster-announce-bus-port", &announced];
            if node == 0 {
                setup.arguments.extend(ports.map(Into::into));
            }
            setup.arguments.extend(["--cluster-require-full-coverage", "no"].map(Into::into));
            setup
        })
    };
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let scene = begin(&cluster).await;
    proxy.set(Conduct::partition());
    // It talks to nobody any more.
    let mut connection = cluster.nodes[0].connect();
    for other in 1..6 {
        let () = ask(&mut connection, &["CLUSTER", "FORGET", &cluster.id(other)]);
    }
    promoted(&cluster, 3, 2).await;
    assert!(cluster.is_master(0), "it does not know");
    let name = names_at(&cluster, 0).find(|name| *name != scene.name).unwrap();
    let () = ask(&mut connection, &["SET", &name, "of the former master", "PX", "60000"]);
    let held = take(&scene.stores[0], &name, MINUTE).await;
    scene.stores[0].unlock(unlock(&held, &name)).await.unwrap();
    scene.end(&cluster.nodes[3]).await;
}
