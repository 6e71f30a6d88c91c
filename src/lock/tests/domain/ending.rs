//! Ending grants by their public IDs, over a backend that is slow or fails.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use leasehold_lock::{
    AcquireRequest, GrantId, Granted, LockError, Mode, RenewRequest, ResourceId, Store,
    inspect::{EndOf, EndOutcome, EndRequest, Ended, GrantView, Scope},
};
use tokio::time::{Instant, sleep};

use crate::faulty::{Fault, hold, request, store, unlock};

const SECOND: Duration = Duration::from_secs(1);

/// The reported ends.
type Ends = Arc<Mutex<Vec<(Option<GrantId>, EndOutcome)>>>;

async fn end(store: &Store, of: EndOf) -> Result<Ended, LockError> {
    store.end(&EndRequest { of, dry_run: false, limit: 1000 }, &|_, _, _| {}).await
}

async fn end_all(store: &Store, resource: &str) -> Result<Ended, LockError> {
    end(store, EndOf::Resource(resource.parse().unwrap(), None)).await
}

/// How many grants were ended.
fn count(ended: &Ended) -> usize {
    ended.locks.iter().map(|lock| lock.grants.len()).sum()
}

/// Ends the grants of a scope, and adds each reported end to `ends`.
async fn end_reporting(
    store: Store,
    prefix: &'static str,
    ends: Ends,
) -> Result<Ended, LockError> {
    let of = EndOf::Scope { scope: Scope::prefix(prefix), holder_prefix: String::new() };
    let on_end = |_: &ResourceId, grant: &GrantView, outcome| {
        ends.lock().unwrap().push((grant.id, outcome));
    };
    store.end(&EndRequest { of, dry_run: false, limit: 1000 }, &on_end).await
}

async fn read_by(store: &Store, readers: usize) -> Vec<Granted> {
    let mut grants = Vec::new();
    for _ in 0..readers {
        let shared = AcquireRequest { mode: Mode::Shared, ..request("r") };
        let granted = store.try_lock(shared).await.unwrap();
        granted.receipt.accept();
        grants.push(granted);
    }
    grants
}

/// Trap: domain 22
#[tokio::test(start_paused = true)]
async fn an_end_that_comes_late_spares_the_grant_that_came_after() {
    let (store, faulty) = store();
    let listed = hold(&store, "r").await;
    faulty.script.on_unlock(Fault::Delayed(SECOND));
    let ending = {
        let store = store.clone();
        tokio::spawn(async move { end_all(&store, "r").await })
    };
    while faulty.script.unlocks.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    unlock(&store, "r", &listed).await.unwrap();
    let later = hold(&store, "r").await;

    assert_eq!(ending.await.unwrap(), Err(LockError::NotFound { held: false }));

    let resource = "r".parse().unwrap();
    let renewal = RenewRequest { resource, lock_id: later.lock_id.clone(), ttl: None };
    assert!(store.renew(renewal).await.is_ok(), "the later grant was ended");
}

#[tokio::test(start_paused = true)]
async fn ends_of_which_one_is_unknown_are_not_reported_as_not_carried_out() {
    for second_fails_worse in [false, true] {
        let (store, faulty) = store();
        read_by(&store, 2).await;
        let mut faults = [Fault::ReplyLost, Fault::Unreachable];
        if second_fails_worse {
            faults.reverse();
        }
        faults.into_iter().for_each(|fault| faulty.script.on_unlock(fault));
        let answer = end_all(&store, "r").await;
        assert!(
            matches!(answer, Err(LockError::OutcomeUnknown(_))),
            "{faults:?} gave {answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_stops_although_the_pages_of_the_store_do_not() {
    let (store, faulty) = store();
    hold(&store, "r").await;
    *faulty.script.look_delay.lock().unwrap() = Duration::from_millis(100);
    faulty.script.has_endless_pages.store(true, Ordering::Relaxed);
    let other = EndOf::Resource("r".parse().unwrap(), Some(GrantId::from_u128(1)));
    assert_eq!(end(&store, other).await, Ok(Ended { locks: vec![], more: true }));
}

#[tokio::test(start_paused = true)]
async fn no_end_is_begun_after_four_seconds() {
    let (store, faulty) = store();
    read_by(&store, 100).await;
    for _ in 0..100 {
        faulty.script.on_unlock(Fault::Delayed(Duration::from_millis(4_500)));
    }
    let ended = end_all(&store, "r").await.unwrap();
    let begun = faulty.script.unlocks.load(Ordering::Relaxed);
    assert_eq!((count(&ended), ended.more, begun), (32, true, 32));
}

#[tokio::test(start_paused = true)]
async fn all_parts_of_an_end_share_one_operation_timeout() {
    let (store, faulty) = store();
    hold(&store, "r").await;
    *faulty.script.look_delay.lock().unwrap() = 3 * SECOND;
    faulty.script.on_unlock(Fault::Silent);
    let began = Instant::now();
    let answer = end_all(&store, "r").await;
    assert!(matches!(answer, Err(LockError::OutcomeUnknown(_))), "{answer:?}");
    assert!(began.elapsed() < 6 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_end_is_begun_after_a_failure() {
    let (store, faulty) = store();
    read_by(&store, 100).await;
    faulty.script.on_unlock(Fault::Unreachable);
    for _ in 1..100 {
        faulty.script.on_unlock(Fault::Delayed(SECOND));
    }
    let ended = end_all(&store, "r").await.unwrap();
    let begun = faulty.script.unlocks.load(Ordering::Relaxed);
    assert_eq!((count(&ended), ended.more, begun), (31, true, 32));
}

#[tokio::test(start_paused = true)]
async fn the_locks_of_a_scope_are_ended_32_at_a_time() {
    let (store, faulty) = store();
    for number in 0..100 {
        hold(&store, &format!("a/{number}")).await;
        faulty.script.on_unlock(Fault::Delayed(Duration::from_millis(10)));
    }
    let of = EndOf::Scope { scope: Scope::prefix("a/"), holder_prefix: String::new() };
    assert_eq!(count(&end(&store, of).await.unwrap()), 100);
    assert_eq!(faulty.script.unlocking_max.load(Ordering::Relaxed), 32);
}

#[tokio::test(start_paused = true)]
async fn a_grant_among_many_is_found_at_the_first_look_whatever_the_limit() {
    let (store, faulty) = store();
    let readers = read_by(&store, 200).await;
    for reader in &readers[..3] {
        let of = EndOf::Resource("r".parse().unwrap(), reader.id);
        let request = EndRequest { of, dry_run: false, limit: 1 };
        let ended = store.end(&request, &|_, _, _| {}).await.unwrap();
        assert_eq!((ended.locks[0].grants[0].id, ended.more), (reader.id, false));
    }
    assert_eq!(faulty.script.looks.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn an_end_is_reported_while_others_are_under_way() {
    let (store, faulty) = store();
    let held = [hold(&store, "a/1").await.id, hold(&store, "a/2").await.id];
    for delay in [Duration::from_millis(10), SECOND] {
        faulty.script.on_unlock(Fault::Delayed(delay));
    }
    let ends = Ends::default();
    let ending = tokio::spawn(end_reporting(store, "a/", ends.clone()));
    while ends.lock().unwrap().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(!ending.is_finished());
    let [(id, EndOutcome::Ended)] = ends.lock().unwrap()[..] else { panic!("{ends:?}") };
    assert!(held.contains(&id));
    ending.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_end_of_unknown_outcome_is_reported_as_unknown() {
    let (store, faulty) = store();
    let held = hold(&store, "a/1").await;
    faulty.script.on_unlock(Fault::ReplyLost);
    let ends = Ends::default();
    let ended = end_reporting(store, "a/", ends.clone()).await;
    assert!(matches!(ended, Err(LockError::OutcomeUnknown(_))), "{ended:?}");
    assert_eq!(*ends.lock().unwrap(), [(held.id, EndOutcome::Unknown)]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_replaced_is_not_closed_while_grants_are_ended() {
    let (store, faulty) = store();
    hold(&store, "r").await;
    *faulty.script.look_delay.lock().unwrap() = SECOND;
    faulty.script.on_unlock(Fault::Delayed(SECOND));
    let ending = {
        let store = store.clone();
        tokio::spawn(async move { end_all(&store, "r").await })
    };
    while faulty.script.looks.load(Ordering::Relaxed) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    store.retire().await;
    assert_eq!(count(&ending.await.unwrap().unwrap()), 1);
}
