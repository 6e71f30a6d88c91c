//! When a resource is looked at.

use leasehold_lock::Ttl;

use super::*;

fn attempt() -> Attempt {
    Attempt::new(
        ResourceId::new("r").unwrap(),
        Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
    )
}

/// Whether a look is ever due.
async fn is_looked_at(waiters: &Waiters) -> bool {
    let looks = tokio::time::timeout(Duration::from_secs(3600), waiters.due(1));
    looks.await.is_ok_and(|due| due == [attempt().resource])
}

/// Trap: redis 41
#[tokio::test(start_paused = true)]
async fn a_guard_stays_when_the_last_waiter_leaves() {
    let waiters = Arc::new(Waiters::new());
    let seat = waiters.register(&attempt());
    waiters.plan(&attempt().resource, Duration::ZERO);
    waiters.guard(&attempt().resource, Duration::from_secs(2));
    drop(seat);
    assert!(is_looked_at(&waiters).await);
    assert!(waiters.inner().resources.is_empty(), "something is left");
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_answered_with_a_look_only_where_somebody_waits() {
    let waiters = Arc::new(Waiters::new());
    waiters.handle(&Notice::Look { resource: "r" });
    assert!(waiters.inner().resources.is_empty(), "something is left");
    let _seat = waiters.register(&attempt());
    waiters.handle(&Notice::Look { resource: "r" });
    assert!(is_looked_at(&waiters).await);
}

#[tokio::test(start_paused = true)]
async fn looks_for_waiters_end_with_them() {
    let waiters = Arc::new(Waiters::new());
    let seat = waiters.register(&attempt());
    waiters.guard(&attempt().resource, Duration::from_secs(2));
    waiters.confirmed(&attempt().resource);
    waiters.plan(&attempt().resource, Duration::from_secs(2));
    drop(seat);
    assert!(!is_looked_at(&waiters).await);
    assert!(waiters.inner().resources.is_empty(), "something is left");
}
