//! What a store reports of itself.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use leasehold_lock::{
    AcquireRequest, Clock, Context, Settings, Store, UnlockRequest, observe::Verb,
};
use leasehold_memory::Memory;
use leasehold_testing::Recorder;
use tokio::time::sleep;

use crate::faulty::{Fault, Faulty, Script, hold, no_record_left, request, unlock};

fn observed() -> (Store, Arc<Faulty>, Arc<Recorder>) {
    let settings = Settings::default();
    let context = Context::new(settings.clone(), Clock::system());
    let faulty = Arc::new(Faulty { memory: Memory::new(&context), script: Script::default() });
    let recorder = Arc::new(Recorder::default());
    (Store::observed(faulty.clone(), settings, recorder.clone()), faulty, recorder)
}

#[tokio::test(start_paused = true)]
async fn a_call_is_reported_once_with_its_result() {
    let (store, _, recorder) = observed();
    hold(&store, "r").await;
    store.try_lock(request("r")).await.unwrap_err();
    let waited = AcquireRequest {
        deadline: Some(tokio::time::Instant::now() + Duration::from_secs(1)),
        ..request("r")
    };
    store.lock(waited).await.unwrap_err();
    let streamed = AcquireRequest { streamed: true, ..request("s") };
    store.try_lock(streamed).await.unwrap().receipt.accept();
    let lines = [
        "try exclusive: ok",
        "try exclusive: RESOURCE_LOCKED",
        "wait exclusive: WAIT_DEADLINE",
        "stream exclusive: ok",
    ];
    assert_eq!(recorder.take_lines(), lines);
}

#[tokio::test(start_paused = true)]
async fn a_wait_whose_caller_leaves_is_reported_as_cancelled() {
    let (store, _, recorder) = observed();
    let held = hold(&store, "r").await;
    recorder.take_lines();
    let waiting = store.clone();
    let waiting = tokio::spawn(async move { waiting.lock(request("r")).await.map(drop) });
    sleep(Duration::from_secs(1)).await;
    assert_eq!(recorder.recorded().waiting, 1);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(recorder.recorded().waiting, 0);
    assert_eq!(recorder.take_lines(), ["wait exclusive: cancelled"]);
    unlock(&store, "r", &held).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_received_is_reported_as_undone() {
    let (store, faulty, recorder) = observed();
    drop(store.try_lock(request("r")).await.unwrap());
    no_record_left(&faulty).await;
    assert_eq!(recorder.take_lines(), ["try exclusive: ok", "undone"]);
    // A refused try leaves nothing to undo, and a received grant is not undone.
    drop(hold(&store, "r").await);
    store.try_lock(request("r")).await.unwrap_err();
    sleep(Duration::from_secs(1)).await;
    let lines = recorder.take_lines();
    assert_eq!(lines, ["try exclusive: ok", "try exclusive: RESOURCE_LOCKED"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_unsettled_until_it_is_confirmed() {
    let (store, faulty, recorder) = observed();
    faulty.script.on_acquire(Fault::ReplyLost);
    for _ in 0..3 {
        faulty.script.on_unlock(Fault::Unreachable);
    }
    store.try_lock(request("r")).await.unwrap_err();
    assert_eq!(recorder.recorded().unsettled, 1);
    no_record_left(&faulty).await;
    sleep(Duration::from_millis(10)).await;
    assert_eq!(recorder.recorded().unsettled, 0);
    let mut answers = vec![(Verb::Try, true)];
    answers.extend([(Verb::Unlock, true); 3]);
    answers.push((Verb::Unlock, false));
    assert_eq!(recorder.recorded().answers, answers);
    // Nobody got it.
    assert_eq!(recorder.take_lines(), ["try exclusive: OUTCOME_UNKNOWN"]);
}

/// Otherwise the figures of a backend that hangs would look good.
#[tokio::test(start_paused = true)]
async fn a_backend_that_never_answers_is_reported_as_failing() {
    let (store, faulty, recorder) = observed();
    faulty.script.on_acquire(Fault::Silent);
    store.try_lock(request("r")).await.unwrap_err();
    assert_eq!(recorder.recorded().answers[0], (Verb::Try, true));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_by_force_is_reported_and_no_other() {
    let (store, _, recorder) = observed();
    let held = hold(&store, "r").await;
    unlock(&store, "r", &held).await.unwrap();
    hold(&store, "r").await;
    recorder.take_lines();
    store.unlock(UnlockRequest::force("r".parse().unwrap())).await.unwrap();
    store.unlock(UnlockRequest::force("r".parse().unwrap())).await.unwrap_err();
    assert_eq!(recorder.take_lines(), ["forced: ok", "forced: LOCK_NOT_FOUND"]);
    assert!(store.try_lock(request("r")).now_or_never().is_some());
}
