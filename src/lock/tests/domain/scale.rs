//! A million locks leave nothing behind.

use std::time::Duration;

use tokio::{runtime::Handle, time::sleep};

use crate::faulty::{hold, store, unlock};

const LOCKS: usize = 1_000_000;
/// How many locks are made before the clock moves on.
const HELD: usize = 10_000;
/// How much the memory of the process may grow. Other tests in it took 60 MiB; a record or a task
/// for each lock would take several hundred.
const GROWTH_KIB_MAX: u64 = 160 * 1024;

/// Each of a million resources is locked once. Half of the locks are
/// unlocked, and the others expire.
/// Trap: memory 20, memory 28
#[tokio::test(start_paused = true)]
async fn a_million_distinct_locks_leave_no_record_and_no_task() {
    let (store, faulty) = store();
    let tasks = Handle::current().metrics().num_alive_tasks();
    let before_kib = resident_kib();
    for first in (0..LOCKS).step_by(HELD) {
        for n in first..first + HELD {
            let resource = format!("r{n}");
            let granted = hold(&store, &resource).await;
            if n % 2 == 0 {
                unlock(&store, &resource, &granted).await.unwrap();
            }
        }
        sleep(Duration::from_secs(31)).await;
        assert_eq!(faulty.memory.records(), 0);
    }
    assert_eq!(Handle::current().metrics().num_alive_tasks(), tasks);
    let grown_kib = resident_kib().saturating_sub(before_kib);
    assert!(grown_kib < GROWTH_KIB_MAX, "memory grew by {grown_kib} KiB");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
