//! Scripted worst cases: the fault comes at the worst moment.

#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::print_stdout, reason = "skipped checks are printed")]

use std::{path::Path, time::Duration};

use etcd_client::GetOptions;
use leasehold_reliability::world::{
    Backend, Store, World,
    etcd::EtcdCluster,
    member::PREFIX,
    probe::{Probe, reason},
    redis::RedisServer,
};
use leasehold_testkit::{
    proxy::{Conduct, Flow},
    wait::eventually,
};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};
use tonic::Status;

/// Ample time for steps that take seconds.
const SOON: Duration = Duration::from_secs(20);
/// Longer than any wait here should take.
const WAIT: Duration = Duration::from_secs(40);
/// How long the lease of a probe's lock lasts.
const LEASE: Duration = Duration::from_secs(3);
/// The TTL of locks that must not end by themselves at once, for a busy machine. It is shorter than
/// any wait for a lock that comes back with a snapshot.
const HELD_S: i64 = 6;
/// A short wait, which delays nobody.
const PASSING: Duration = Duration::from_millis(300);

async fn probes(world: &World) -> Vec<Probe> {
    let mut probes = Vec::new();
    for socket in world.sockets() {
        probes.push(Probe::connect(&socket).await.unwrap());
    }
    probes
}

/// Takes a lock for [`HELD_S`], and returns its ID.
async fn hold(probe: &Probe, resource: &str) -> String {
    probe.with_ttl_s(HELD_S).try_lock(resource).await.unwrap().0
}

fn etcd(world: &mut World) -> &mut EtcdCluster {
    let Store::Etcd(etcd) = &mut world.store else { panic!("not on etcd") };
    etcd
}

fn redis(world: &mut World) -> &mut RedisServer {
    let Store::Redis(redis) = &mut world.store else { panic!("not on Redis") };
    redis
}

async fn all_down(world: &mut World) {
    for member in etcd(world).members() {
        member.kill();
    }
}

/// Waits of one resource, spread over the processes; each unlocks what it gets
/// and yields the token.
fn waiters(
    probes: &[Probe],
    resource: &'static str,
    count: usize,
) -> JoinSet<Result<i64, Status>> {
    let mut waits = JoinSet::new();
    for number in 0..count {
        let probe = probes[number % probes.len()].clone();
        waits.spawn(async move {
            let (lock_id, token) = probe.lock(resource, WAIT).await?;
            // An unlock without an answer is repeated, or the grant expires.
            let _ = probe.unlock(resource, &lock_id).await;
            Ok(token)
        });
    }
    waits
}

/// Checks that all are served, with different tokens.
async fn all_served(waits: JoinSet<Result<i64, Status>>, count: usize) {
    let ends = waits.join_all().await;
    let failed: Vec<String> =
        ends.iter().filter_map(|end| end.as_ref().err().map(reason)).collect();
    assert!(failed.is_empty(), "{} of {count} failed: {failed:?}", failed.len());
    let mut tokens: Vec<i64> = ends.into_iter().map(Result::unwrap).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "a token was given twice");
}

/// Returns once a short wait of the test was in the queue behind the others.
async fn queued(probe: &Probe, resource: &str) {
    eventually(SOON, "a wait ends in the queue", async || {
        // On a busy machine its answer may come too late for its caller.
        let why = reason(&probe.lock(resource, PASSING).await.unwrap_err());
        anyhow::ensure!(why == "WAIT_DEADLINE", "{why}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn leaves_nothing(mut world: World) {
    assert_eq!(world.leftovers().await.unwrap(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test]
async fn a_snapshot_s_grant_ends_though_its_lease_was_kept_for_reuse() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let probe = probes(&world).await.remove(0).with_ttl_s(HELD_S);
    let (lock_id, _) = probe.try_lock("held-then").await.unwrap();
    let snapshot = etcd(&mut world).snapshot().await.unwrap();
    probe.unlock("held-then", &lock_id).await.unwrap();
    restored(&mut world, &snapshot).await;
    eventually(SOON, "the grant of the snapshot has ended", async || {
        // Busy all the time, so that a kept lease is used.
        probe.cycle().await?;
        let (lock_id, _) = probe.try_lock("held-then").await?;
        Ok(probe.unlock("held-then", &lock_id).await?)
    })
    .await
    .unwrap();
    leaves_nothing(world).await;
}

async fn a_snapshot_s_waiter_is_passed_over(after: Duration) {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [first, second] = probes(&world).await.try_into().unwrap();
    let lock_id = hold(&first, "waited-for").await;
    let waiting = tokio::spawn({
        let second = second.clone();
        async move { second.lock("waited-for", PASSING * 4).await }
    });
    queued(&second, "waited-for").await;
    let snapshot = etcd(&mut world).snapshot().await.unwrap();
    assert!(waiting.await.unwrap().is_err(), "it was held all the while");
    let _ = first.unlock("waited-for", &lock_id).await;
    // The second's session stays alive, because it has a waiter elsewhere.
    let mut elsewhere = JoinSet::new();
    for _ in 0..2 {
        let second = second.clone();
        elsewhere.spawn(async move {
            loop {
                if let Ok((lock_id, _)) = second.lock("elsewhere", SOON).await {
                    tokio::time::sleep(PASSING).await;
                    let _ = second.unlock("elsewhere", &lock_id).await;
                }
            }
        });
    }
    tokio::time::sleep(after).await;
    restored(&mut world, &snapshot).await;
    let (lock_id, _) = first.lock("waited-for", SOON).await.unwrap();
    first.unlock("waited-for", &lock_id).await.unwrap();
    elsewhere.shutdown().await;
    leaves_nothing(world).await;
}

#[tokio::test]
async fn a_snapshot_s_waiter_is_passed_over_though_its_session_lives() {
    a_snapshot_s_waiter_is_passed_over(Duration::ZERO).await;
}

/// Its process no longer watches the queue, as it does for 5 s after a wait.
#[tokio::test]
async fn a_snapshot_s_waiter_in_a_queue_that_is_forgotten_is_passed_over() {
    a_snapshot_s_waiter_is_passed_over(Duration::from_secs(7)).await;
}

/// The keys with this beginning below the store's prefix, and how often each
/// was written.
async fn keys(world: &mut World, begin: &str) -> anyhow::Result<Vec<(String, i64)>> {
    let mut client = etcd(world).client().await?;
    let options = GetOptions::new().with_prefix();
    let found = client.get(format!("{PREFIX}/{begin}"), Some(options)).await?;
    let keys = found.kvs().iter().map(|pair| Ok((pair.key_str()?.to_owned(), pair.version())));
    keys.collect()
}

async fn restored(world: &mut World, snapshot: &Path) {
    all_down(world).await;
    etcd(world).restore(snapshot, false).await.unwrap();
    world.heal().await.unwrap();
}

/// Every wait of a process compared with a higher revision than the restored
/// data set had, and so was unavailable from then on.
#[tokio::test]
async fn a_process_waits_again_after_a_snapshot_from_before_its_session_was_fenced() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [first, second] = probes(&world).await.try_into().unwrap();
    first.with_ttl_s(20).try_lock("held").await.unwrap();
    queued(&second, "held").await;
    let snapshot = etcd(&mut world).snapshot().await.unwrap();
    // A process watches a queue for five seconds after a wait, and puts an entry at once meanwhile.
    queued(&second, "held").await;
    // A wait with an unknown entry: its later effects are fenced off.
    for proxy in &world.leaseholds[1].proxies {
        proxy.set(Conduct { replies: Flow::Swallow, ..Conduct::default() });
    }
    second.lock("held", PASSING).await.unwrap_err();
    world.heal().await.unwrap();
    eventually(SOON, "the session is fenced", async || {
        let sessions = keys(&mut world, "s/").await?;
        anyhow::ensure!(sessions.iter().any(|(_, written)| *written > 1), "{sessions:?}");
        Ok(())
    })
    .await
    .unwrap();
    restored(&mut world, &snapshot).await;
    first.try_lock("held-now").await.unwrap();
    let (lock_id, _) = second.lock("held-now", SOON).await.unwrap();
    second.unlock("held-now", &lock_id).await.unwrap();
    leaves_nothing(world).await;
}

/// It once took the list that it read again for one from before its entry.
#[tokio::test]
async fn a_waiter_that_a_snapshot_does_not_have_queues_again() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [first, second] = probes(&world).await.try_into().unwrap();
    let snapshot = etcd(&mut world).snapshot().await.unwrap();
    for _ in 0..200 {
        first.cycle().await.unwrap();
    }
    hold(&first, "later").await;
    let waits = tokio::spawn(async move { second.lock("later", WAIT).await });
    eventually(SOON, "the entry is put", async || {
        let keys = keys(&mut world, "r/later/").await?;
        anyhow::ensure!(keys.len() == 2, "{keys:?}");
        Ok(())
    })
    .await
    .unwrap();
    restored(&mut world, &snapshot).await;
    let served = timeout(SOON, waits).await.expect("it is served soon").unwrap();
    served.unwrap();
    world.stop().await;
}

/// A lease that was kept for reuse went to a grant that had waited for etcd to
/// come back, and was revoked with the grant that the snapshot had under it.
#[tokio::test]
async fn a_grant_that_waited_for_a_restore_is_not_under_an_older_one_s_lease() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [first, second] = probes(&world).await.try_into().unwrap();
    let first = first.with_ttl_s(HELD_S);
    let (older, _) = first.try_lock("older").await.unwrap();
    let snapshot = etcd(&mut world).snapshot().await.unwrap();
    first.unlock("older", &older).await.unwrap();
    all_down(&mut world).await;
    let asked = tokio::spawn({
        let first = first.clone();
        async move { first.try_lock("newer").await }
    });
    restored(&mut world, &snapshot).await;
    let Ok((newer, _)) = asked.await.unwrap() else {
        println!(
            "etcd took too long to come back for the call: nothing was granted to look at"
        );
        return leaves_nothing(world).await;
    };
    let _ = second.unlock("older", &older).await;
    // Pending revocations are carried out at once.
    second.cycle().await.unwrap();
    first.unlock("newer", &newer).await.unwrap();
    leaves_nothing(world).await;
}

/// After its return, a leader that stood still revokes leases that have expired
/// by its own count, though its successor has prolonged them
/// (etcd-io/etcd#15247).
#[tokio::test]
async fn a_leader_that_comes_back_ends_no_grant_that_was_renewed_since() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [probe, _] = probes(&world).await.try_into().unwrap();
    let (probe, lease) = (probe.with_ttl_s(5), Duration::from_secs(6));
    let mut held = Vec::new();
    for number in 0..20 {
        let resource = format!("held-{number}");
        let (lock_id, _) = probe.try_lock(&resource).await.unwrap();
        held.push((resource, lock_id));
    }
    let leader = etcd(&mut world).leader().await.unwrap();
    etcd(&mut world).members()[leader].suspend().unwrap();
    // Longer than a lease lasts, so that it considers them all expired.
    let until = tokio::time::Instant::now() + lease * 2;
    while tokio::time::Instant::now() < until {
        for (resource, lock_id) in &held {
            let _ = probe.renew(resource, lock_id).await;
        }
    }
    for (resource, lock_id) in &held {
        probe.renew(resource, lock_id).await.unwrap();
    }
    etcd(&mut world).members()[leader].resume().unwrap();
    let until = tokio::time::Instant::now() + lease;
    while tokio::time::Instant::now() < until {
        for (resource, lock_id) in &held {
            probe.renew(resource, lock_id).await.unwrap();
        }
    }
    world.heal().await.unwrap();
    world.stop().await;
}

/// The lease that it keeps for reuse has aged meanwhile, though its clock does not show
/// it.
/// Trap: etcd 32
#[tokio::test]
async fn a_grant_after_the_machine_was_suspended_lives_for_its_ttl() {
    let (mut world, _folder) = World::for_test(Backend::Etcd, 1).await.unwrap();
    let [probe, other] = probes(&world).await.try_into().unwrap();
    probe.cycle().await.unwrap();
    world.leaseholds[0].sleep(LEASE - Duration::from_millis(1_200)).await.unwrap();
    let asked = tokio::time::Instant::now();
    probe.try_lock("r").await.unwrap();
    eventually(SOON, "another process is granted it", async || {
        Ok(other.try_lock("r").await.map(drop)?)
    })
    .await
    .unwrap();
    let lived = asked.elapsed();
    assert!(lived >= LEASE - Duration::from_secs(1), "its grant ended after {lived:?}");
    world.stop().await;
}

/// A world on etcd whose waits outlive an outage as long as one on a busy machine.
async fn patient() -> (World, TempDir) {
    World::with_operation_timeout(Backend::Etcd, 1, "20s").await.unwrap()
}

#[tokio::test]
async fn waiters_outlive_an_outage_of_all_members() {
    let (mut world, _folder) = patient().await;
    let probes = probes(&world).await;
    let lock_id = hold(&probes[0], "r").await;
    let waits = waiters(&probes, "r", 20);
    queued(&probes[0], "r").await;
    all_down(&mut world).await;
    etcd(&mut world).restart().await.unwrap();
    world.heal().await.unwrap();
    let _ = probes[0].unlock("r", &lock_id).await;
    all_served(waits, 20).await;
    leaves_nothing(world).await;
}

#[tokio::test]
async fn hand_overs_go_on_over_the_death_of_the_leader() {
    let (mut world, _folder) = patient().await;
    let probes = probes(&world).await;
    let lock_id = hold(&probes[0], "r").await;
    let waits = waiters(&probes, "r", 30);
    queued(&probes[1], "r").await;
    let leader = etcd(&mut world).leader().await.unwrap();
    probes[0].unlock("r", &lock_id).await.unwrap();
    etcd(&mut world).members()[leader].kill();
    all_served(waits, 30).await;
    world.heal().await.unwrap();
    leaves_nothing(world).await;
}

#[tokio::test]
async fn a_hundred_waiters_outlive_a_restart_of_redis_without_its_data() {
    let (mut world, _folder) = World::for_test(Backend::Redis, 1).await.unwrap();
    let probes = probes(&world).await;
    let lock_id = hold(&probes[0], "r").await;
    let waits = waiters(&probes, "r", 100);
    queued(&probes[0], "r").await;
    redis(&mut world).kill();
    redis(&mut world).lose_data().unwrap();
    redis(&mut world).restart().await.unwrap();
    let _ = probes[0].unlock("r", &lock_id).await;
    all_served(waits, 100).await;
    world.heal().await.unwrap();
    leaves_nothing(world).await;
}

async fn a_swallowed_reply_strands_nothing(backend: Backend) {
    let (mut world, _folder) = World::for_test(backend, 1).await.unwrap();
    let [first, second] = probes(&world).await.try_into().unwrap();
    first.cycle().await.unwrap();
    for proxy in &world.leaseholds[0].proxies {
        proxy.set(Conduct { replies: Flow::Swallow, ..Conduct::default() });
    }
    let unknown = reason(&first.try_lock("r").await.unwrap_err());
    assert!(["OUTCOME_UNKNOWN", "STORE_UNAVAILABLE"].contains(&unknown.as_str()), "{unknown}");
    world.heal().await.unwrap();
    let (lock_id, _) = second.lock("r", SOON).await.unwrap();
    second.unlock("r", &lock_id).await.unwrap();
    leaves_nothing(world).await;
}

#[tokio::test]
async fn an_acquisition_on_redis_whose_reply_is_swallowed_strands_nothing() {
    a_swallowed_reply_strands_nothing(Backend::Redis).await;
}

#[tokio::test]
async fn an_acquisition_on_etcd_whose_reply_is_swallowed_strands_nothing() {
    a_swallowed_reply_strands_nothing(Backend::Etcd).await;
}

async fn a_partition_is_reported_and_harms_nobody_else(backend: Backend) {
    let (mut world, _folder) = World::for_test(backend, 1).await.unwrap();
    let [cut_off, other] = probes(&world).await.try_into().unwrap();
    for proxy in &world.leaseholds[0].proxies {
        proxy.set(Conduct::partition());
    }
    let unavailable = eventually(SOON, "STORE_UNAVAILABLE", async || {
        let why = reason(&cut_off.try_lock("r").await.unwrap_err());
        anyhow::ensure!(why == "STORE_UNAVAILABLE", "{why}");
        other.cycle().await
    });
    unavailable.await.unwrap();
    world.heal().await.unwrap();
    leaves_nothing(world).await;
}

#[tokio::test]
async fn a_process_partitioned_from_redis_says_so_and_the_other_serves() {
    a_partition_is_reported_and_harms_nobody_else(Backend::Redis).await;
}

#[tokio::test]
async fn a_process_partitioned_from_etcd_says_so_and_the_other_serves() {
    a_partition_is_reported_and_harms_nobody_else(Backend::Etcd).await;
}
