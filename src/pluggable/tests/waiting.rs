//! Waits of a store.

use std::{sync::mpsc, time::Duration};

use leasehold_lock::{self as lock, AcquireRequest, LockError};
use leasehold_proto::components::LockResponse;
use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{Instant, advance, pause, sleep},
};
use tonic::Status;

use crate::fake::{Asked, Fake, Reaction};

/// Trap: pluggable 10
#[tokio::test]
async fn a_caller_that_goes_away_ends_its_wait() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::SayNothing);
    let waiting =
        tokio::spawn(
            async move { store.lock(AcquireRequest::new("r".parse().unwrap())).await },
        );
    let Asked::Lock(asked) = fake.next().await else { panic!("no wait") };
    waiting.abort();
    // The wait is cancelled, and undone in case it was being granted.
    let after = [fake.next().await, fake.next().await];
    assert!(after.contains(&Asked::Dropped), "{after:?}");
    let is_undone = |asked_now: &Asked| matches!(asked_now, Asked::Unlock(undone) if undone.lock_id == asked.lock_id);
    assert!(after.iter().any(is_undone), "{after:?}");
}

#[tokio::test]
async fn a_wait_ends_before_its_deadline_and_leaves_nothing() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::SayNothing);
    // While a thread blocks, paused time moves only when it is told to, so a slow machine comes in
    // time, too.
    let (_end, blocked) = mpsc::channel::<()>();
    spawn_blocking(move || blocked.recv_timeout(Duration::from_secs(30)));
    pause();
    let deadline = Instant::now() + Duration::from_secs(2);
    let request = AcquireRequest {
        deadline: Some(deadline),
        ..AcquireRequest::new("r".parse().unwrap())
    };
    let waiting = tokio::spawn(async move { store.lock(request).await });
    assert!(matches!(fake.next().await, Asked::Lock(_)));
    advance(Duration::from_millis(1_940)).await;
    assert_eq!(waiting.await.unwrap().unwrap_err(), LockError::WaitDeadline);
    assert!(Instant::now() < deadline);
    let after = [fake.next().await, fake.next().await];
    assert!(after.iter().any(|asked| matches!(asked, Asked::Unlock(_))), "{after:?}");
}

#[tokio::test]
async fn the_ttl_counts_from_where_the_store_says() {
    let mut fake = Fake::start(&["FENCING"]).await;
    let store = fake.open(&[]).await;
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let (open, gate) = oneshot::channel();
    fake.instruct(Reaction::GrantAfter(gate));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            store
                .try_lock(AcquireRequest::new("r".parse().unwrap()))
                .await
                .unwrap()
                .receipt
                .accept();
        }
    });
    open.send(()).unwrap();
    waiting.await.unwrap();
    fake.next().await;
    // More than can have passed: nevertheless not before now.
    fake.instruct(Reaction::Grant(LockResponse {
        lock_id: "store's own".to_owned(),
        fencing_token: 7,
        ttl: seconds(40),
        waited: seconds(3600),
        ..Default::default()
    }));
    let before = lock::Instant::now();
    let granted = store.lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap();
    assert!(granted.since >= before && granted.since <= lock::Instant::now());
    assert_eq!(granted.ttl, Duration::from_secs(40));
    assert_eq!(granted.token.unwrap().get(), 7);
    assert_eq!(granted.lock_id.as_str(), "store's own");
}

#[tokio::test]
async fn a_long_wait_that_does_not_say_since_when_is_renewed() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[("ttl", "1s")]).await;
    let (open, gate) = oneshot::channel();
    fake.instruct(Reaction::GrantAfter(gate));
    let started = lock::Instant::now();
    let waiting =
        tokio::spawn(
            async move { store.lock(AcquireRequest::new("r".parse().unwrap())).await },
        );
    let Asked::Lock(asked) = fake.next().await else { panic!("no wait") };
    sleep(Duration::from_millis(300)).await;
    open.send(()).unwrap();
    let granted = waiting.await.unwrap().unwrap();
    assert!(
        matches!(fake.next().await, Asked::Renew(renewed) if renewed.lock_id == asked.lock_id)
    );
    assert!(granted.since - started >= Duration::from_millis(300));
    granted.receipt.accept();
}

/// Trap: pluggable 6
#[tokio::test]
async fn a_wait_that_is_broken_off_begins_again_with_nothing_left_of_it() {
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    fake.instruct(Reaction::Refuse(Status::unknown("broken off")));
    let granted = store.lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap();
    granted.receipt.accept();
    assert!(matches!(fake.next().await, Asked::Lock(_)));
    assert!(matches!(fake.next().await, Asked::Unlock(_)));
    assert!(matches!(fake.next().await, Asked::Lock(_)));
}
