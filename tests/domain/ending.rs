//! Ending grants by their public IDs, over a backend that fails.

use std::{sync::atomic::Ordering, time::Duration};

use leasehold::lock::{
    AcquireRequest, LockError, Mode, RenewRequest, Store,
    inspect::{EndOf, EndRequest, Ended},
};
use tokio::time::sleep;

use crate::faulty::{Fault, hold, request, store, unlock};

async fn end_all(store: &Store, resource: &str) -> Result<Ended, LockError> {
    let of = EndOf::Resource(resource.parse().unwrap(), None);
    store.end(&EndRequest { of, dry_run: false, limit: 100 }).await
}

#[tokio::test(start_paused = true)]
async fn an_end_that_comes_late_spares_the_grant_that_came_after() {
    let (store, faulty) = store();
    let listed = hold(&store, "r").await;
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
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
async fn ends_of_which_one_is_unknown_are_not_told_as_not_happened() {
    let shared = || AcquireRequest { mode: Mode::Shared, ..request("r") };
    for second_fails_worse in [false, true] {
        let (store, faulty) = store();
        for _ in 0..2 {
            store.try_lock(shared()).await.unwrap().receipt.accept();
        }
        let mut faults = [Fault::ReplyLost, Fault::Unreachable];
        if second_fails_worse {
            faults.reverse();
        }
        faults.into_iter().for_each(|fault| faulty.script.on_unlock(fault));
        let told = end_all(&store, "r").await;
        assert!(matches!(told, Err(LockError::OutcomeUnknown(_))), "{faults:?} gave {told:?}");
    }
}
