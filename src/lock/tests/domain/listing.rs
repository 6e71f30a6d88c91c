//! Reading over a backend that stops answering.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::poll;
use leasehold_lock::{
    LockError, ResourceId, Store,
    inspect::{Listing, PageRequest, Scope},
};
use tokio::time::{Instant, timeout};

use crate::{faulty::hold, watched::watched};

fn listing(scope: Scope) -> Listing {
    Listing { scope, holder_prefix: String::new(), page: PageRequest::first(4) }
}

fn everything() -> Listing {
    listing(Scope::prefix(""))
}

/// A store with twenty locks that answers that many reads.
async fn store_with_reads(reads: usize) -> Store {
    let (store, backend) = watched(0);
    for number in 0..20 {
        hold(&store, &format!("r/{number}")).await;
    }
    backend.reads_left.store(reads, Ordering::Relaxed);
    store
}

#[tokio::test(start_paused = true)]
async fn a_read_without_an_answer_is_unavailable_and_leaves_nothing_to_settle() {
    let store = store_with_reads(0).await;
    let (resource, first) = (ResourceId::new("r/1").unwrap(), PageRequest::first(4));
    let got = store.get(&resource, &first).await.map(|_| ());
    let listed = store.list(&everything()).await.map(|_| ());
    let waiters = store.waiters(&resource, &first).await.map(|_| ());
    for read in [got, listed, waiters] {
        assert!(matches!(read, Err(LockError::StoreUnavailable(_))), "{read:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_behind_another_that_takes_too_long_is_overloaded() {
    let store = store_with_reads(0).await;
    let everything = everything();
    let (first, second) = tokio::join!(store.list(&everything), store.list(&everything));
    assert!(matches!(first, Err(LockError::StoreUnavailable(_))), "{first:?}");
    assert_eq!(second, Err(LockError::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_not_complete_in_time_has_what_was_found_before() {
    let store = store_with_reads(1).await;
    // The order of a list is random, so this goes by the count and not by the name.
    let asked = AtomicUsize::new(0);
    let every_other =
        move |_: &ResourceId| asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
    let page = store.list(&listing(Scope::of("", every_other))).await.unwrap();
    assert_eq!(page.items.len(), 2, "of the four that were read");
    assert!(page.next.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_finds_nothing_lets_others_run() {
    let store = store_with_reads(usize::MAX).await;
    let of_nobody = Listing { holder_prefix: "nobody".into(), ..everything() };
    assert!(poll!(pin!(store.list(&of_nobody))).is_pending());
    assert!(store.list(&of_nobody).await.unwrap().items.is_empty());
}

/// The next page was read at once, so callers who leave could keep a store busy.
#[tokio::test(start_paused = true)]
async fn a_list_whose_caller_leaves_is_followed_by_a_rest_too() {
    let (store, backend) = watched(0);
    backend.reads_left.store(0, Ordering::Relaxed);
    let everything = everything();
    timeout(Duration::from_millis(5), store.list(&everything)).await.unwrap_err();
    backend.reads_left.store(usize::MAX, Ordering::Relaxed);
    let since = Instant::now();
    store.list(&everything).await.unwrap();
    assert!(since.elapsed() >= Duration::from_millis(10), "{:?}", since.elapsed());
}
