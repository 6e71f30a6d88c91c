//! Worlds that start, have faults, heal and stop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use leasehold_reliability::{
    faults,
    world::{Backend, World, probe::Probe},
};
use rustix::process::{Pid, Signal, kill_process};

async fn all_serve(world: &World) {
    for socket in world.sockets() {
        Probe::connect(&socket).await.unwrap().cycle().await.unwrap();
    }
}

async fn starts_serves_and_leaves_nothing(backend: Backend) {
    let (mut world, _folder) = World::for_test(backend, 1).await.unwrap();
    all_serve(&world).await;
    assert_eq!(world.leftovers().await.unwrap(), Vec::<String>::new());
    assert_eq!(world.weights().len(), world.sockets().len());
    assert!(world.weights().iter().all(|it| it.rss_bytes > 1 << 20 && it.descriptors > 3));
    world.stop().await;
}

#[tokio::test]
async fn a_world_on_memory_serves_and_leaves_nothing() {
    starts_serves_and_leaves_nothing(Backend::Memory).await;
}

#[tokio::test]
async fn a_world_on_redis_serves_and_leaves_nothing() {
    starts_serves_and_leaves_nothing(Backend::Redis).await;
}

#[tokio::test]
async fn a_world_on_redis_with_sentinels_serves_and_leaves_nothing() {
    starts_serves_and_leaves_nothing(Backend::RedisSentinel).await;
}

#[tokio::test]
async fn a_world_on_a_redis_cluster_serves_and_leaves_nothing() {
    starts_serves_and_leaves_nothing(Backend::RedisCluster).await;
}

#[tokio::test]
async fn a_world_on_etcd_serves_and_leaves_nothing() {
    starts_serves_and_leaves_nothing(Backend::Etcd).await;
}

/// A front has another port after each start, and its clients one address.
#[tokio::test]
async fn clients_reach_a_front_after_its_restart() {
    let (mut world, _folder) = World::with_fronts(Backend::Redis, 1, 1).await.unwrap();
    let before = world.fronts();
    let mut rng = fastrand::Rng::with_seed(1);
    faults::inject(&mut world, "front-killed", &mut rng).await.unwrap();
    assert_eq!(world.fronts(), before);
    // A front locks and unlocks before this returns.
    world.ready().await.unwrap();
    assert_eq!(world.leftovers().await.unwrap(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn a_fault_of_another_backend_is_refused_by_name() {
    let (mut world, _folder) = World::for_test(Backend::Memory, 1).await.unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let refused = faults::inject(&mut world, "redis-flushed", &mut rng).await.unwrap_err();
    assert!(format!("{refused:#}").contains("redis-flushed"), "{refused:#}");
}

#[tokio::test]
async fn a_process_that_ends_by_itself_is_no_recovery() {
    let (mut world, _folder) = World::for_test(Backend::Memory, 1).await.unwrap();
    let id = i32::try_from(world.leaseholds[0].id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
    while world.leaseholds[0].runs() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for error in [
        faults::inject(&mut world, "leasehold-killed", &mut rng).await.unwrap_err(),
        world.heal().await.unwrap_err(),
    ] {
        assert!(format!("{error:#}").contains("ended by itself"), "{error:#}");
    }
}
