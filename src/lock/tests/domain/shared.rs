//! Shared grants through the domain: what is cleaned up is one grant, and no other reader's.

use std::time::Duration;

use leasehold_lock::{
    AcquireRequest, Granted, LockError, Mode, RequestId, Store, safe_deadline,
};
use tokio::time::{sleep, timeout};

use crate::faulty::{Fault, Faulty, hold, no_record_left, request, store, unlock};

fn reader() -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..request("r") }
}

async fn hold_shared(store: &Store) -> Granted {
    let granted = store.try_lock(reader()).await.unwrap();
    granted.receipt.accept();
    granted
}

/// Expects that this reader is the only one left.
async fn is_the_only_holder(store: &Store, faulty: &Faulty, reader: &Granted) {
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(store.try_lock(request("r")).await, Err(LockError::Locked { .. })));
    unlock(store, "r", reader).await.unwrap();
    assert_eq!(faulty.memory.records(), 0, "another grant is left");
}

#[tokio::test(start_paused = true)]
async fn a_shared_grant_that_nobody_received_is_released_and_no_other() {
    let (store, faulty) = store();
    let kept = hold_shared(&store).await;
    drop(store.try_lock(reader()).await.unwrap());
    is_the_only_holder(&store, &faulty, &kept).await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_acquisition_whose_reply_was_lost_is_undone_and_no_other() {
    let (store, faulty) = store();
    let kept = hold_shared(&store).await;
    faulty.script.on_acquire(Fault::ReplyLost);
    let error = store.try_lock(reader()).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    is_the_only_holder(&store, &faulty, &kept).await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_nobody_received_leaves_the_shared_grant_it_found() {
    let (store, faulty) = store();
    let asked = AcquireRequest { request_id: RequestId::new("q").unwrap(), ..reader() };
    let first = store.try_lock(asked.clone()).await.unwrap();
    first.receipt.accept();
    let again = store.try_lock(asked).await.unwrap();
    assert_eq!(again.lock_id, first.lock_id);
    drop(again);
    is_the_only_holder(&store, &faulty, &first).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_wait_is_dropped_lets_the_readers_behind_it_in() {
    let (store, faulty) = store();
    let kept = hold_shared(&store).await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move { store.lock(request("r")).await.map(drop) }
    });
    sleep(Duration::from_millis(10)).await;
    let reading = tokio::spawn({
        let store = store.clone();
        async move { store.lock(reader()).await }
    });
    sleep(Duration::from_millis(10)).await;
    assert!(!reading.is_finished());
    writer.abort();
    let read = timeout(Duration::from_secs(1), reading).await.unwrap().unwrap().unwrap();
    read.receipt.accept();
    unlock(&store, "r", &read).await.unwrap();
    is_the_only_holder(&store, &faulty, &kept).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_no_longer_than_the_safe_deadlines_of_readers_that_are_gone() {
    let (store, faulty) = store();
    let gone = hold_shared(&store).await;
    let written = store.lock(request("r")).await.unwrap();
    assert!(leasehold_lock::Instant::now() >= safe_deadline(gone.since, gone.ttl));
    assert!(gone.since.elapsed() <= gone.ttl + Duration::from_millis(10));
    drop(written);
    no_record_left(&faulty).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_the_waits_of_readers_and_leaves_grants_alone() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    let reading = tokio::spawn({
        let store = store.clone();
        async move { store.lock(reader()).await }
    });
    sleep(Duration::from_millis(10)).await;
    store.drain();
    assert_eq!(reading.await.unwrap().unwrap_err(), LockError::ShuttingDown);
    unlock(&store, "r", &held).await.unwrap();
    assert_eq!(faulty.memory.records(), 0);
}
