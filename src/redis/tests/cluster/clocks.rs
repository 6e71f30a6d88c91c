//! Nodes whose clocks differ.

use leasehold_testkit::{clock_shim::ClockShim, redis::RedisSetup};

use super::*;

/// The second node is 20 s ahead of the first.
const AHEAD_MS: i64 = 20_000;

/// Two masters, whose clocks differ. The folder has the clock's offset.
fn apart() -> (RedisCluster, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut clock = ClockShim::new(folder.path()).unwrap();
    clock.jump(AHEAD_MS).unwrap();
    let variables = clock.variables().map(|(name, value)| (name.into(), value.into()));
    let cluster = RedisCluster::start_with(2, 0, |node| RedisSetup {
        variables: if node == 1 { variables.to_vec() } else { Vec::new() },
        ..RedisSetup::default()
    });
    (cluster, folder)
}

fn left_ms(cluster: &RedisCluster, node: usize, name: &str) -> i64 {
    ask(&mut cluster.nodes[node].connect(), &["PTTL", name])
}

#[tokio::test]
async fn a_lock_lasts_as_long_after_a_move_to_another_clock() {
    let (cluster, _folder) = apart();
    let store = open_cluster(&cluster).await;
    let name = name_at(&cluster, 0);
    let time =
        |node: usize| -> (i64, i64) { ask(&mut cluster.nodes[node].connect(), &["TIME"]) };
    assert!(time(1).0 - time(0).0 >= 18, "the clocks differ");
    let mut last = None;
    for (from, to) in [(0, 1), (1, 0)] {
        let held = take(&store, &name, SECOND * 10).await;
        assert!(last < held.token, "{last:?} {:?}", held.token);
        last = held.token;
        cluster.move_slot(slot(&name), from, to);
        let left = left_ms(&cluster, to, &name);
        assert!((5_000..=10_000).contains(&left), "{left}");
        store.renew(renewal(&held, &name, SECOND * 10)).await.unwrap();
        let left = left_ms(&cluster, to, &name);
        assert!((5_000..=10_000).contains(&left), "{left}");
        store.unlock(unlock(&held, &name)).await.unwrap();
    }
}

#[tokio::test]
async fn a_hand_over_to_a_dead_process_lapses_on_another_clock() {
    for (from, to) in [(0, 1), (1, 0)] {
        let (cluster, _folder) = apart();
        let store = open_cluster(&cluster).await;
        let name = name_at(&cluster, from);
        let held = take(&store, &name, MINUTE).await;
        let mut connection = cluster.nodes[from].connect();
        put_places(&mut connection, &name, &"de".repeat(16), 3);
        let waits = wait(&store, &name, MINUTE);
        until("queued", || waiting(&mut connection, &name) == 4).await;
        store.unlock(unlock(&held, &name)).await.unwrap();
        cluster.move_slot(slot(&name), from, to);
        let granted = in_few_lapses(waits).await.unwrap().unwrap();
        assert!(granted.token > held.token);
    }
}
