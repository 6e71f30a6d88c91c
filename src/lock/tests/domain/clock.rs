//! A wall clock that jumps. Only new tokens depend on it, and they rise all the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_lock::{Clock, Context, LockError, Settings, Store};
use leasehold_memory::Memory;

use tokio::time::sleep;

use crate::faulty::{hold, request};

const NOW_US: u64 = 1_800_000_000_000_000;
const HOUR_US: i64 = 3_600_000_000;
const TTL: Duration = Duration::from_secs(30);

/// A clock that is set forward or back by an hour neither ends nor extends a
/// grant, and tokens still rise.
/// Trap: memory 19
#[tokio::test(start_paused = true)]
async fn a_stepped_clock_changes_no_expiry_and_no_order_of_tokens() {
    for step_us in [HOUR_US, -HOUR_US] {
        let now_us = Arc::new(AtomicU64::new(NOW_US));
        let clock = {
            let now_us = Arc::clone(&now_us);
            Clock::from_fn(move || now_us.load(Ordering::Relaxed))
        };
        let settings = Settings::default();
        let memory = Memory::new(&Context::new(settings.clone(), clock));
        let store = Store::new(Arc::new(memory), settings);
        let first = hold(&store, "r").await;
        now_us.store(NOW_US.saturating_add_signed(step_us), Ordering::Relaxed);
        sleep(TTL - Duration::from_millis(1)).await;
        let refused = store.try_lock(request("r")).await.unwrap_err();
        assert!(matches!(refused, LockError::Locked { .. }), "{refused:?}");
        sleep(Duration::from_millis(1)).await;
        let second = hold(&store, "r").await;
        assert!(second.token > first.token, "{:?} after {:?}", second.token, first.token);
    }
}
