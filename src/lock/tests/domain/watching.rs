//! Watching, listing and ending over a backend that can be seen.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::poll;
use leasehold_lock::{
    BackendError, LockError, ResourceId, UnlockRequest,
    inspect::{EndOf, EndRequest, Listing, PageRequest, Scope, WatchEvent},
};
use tokio::time::{Instant, sleep};

use crate::{
    faulty::{hold, request},
    watched::{watched, watched_with},
};

fn all() -> Scope {
    Scope::prefix("")
}

#[tokio::test(start_paused = true)]
async fn a_watcher_gets_synced_every_ten_seconds() {
    let (store, _) = watched(0);
    let mut watch = store.watch(all()).unwrap();
    assert_eq!(watch.next().await, Ok(WatchEvent::Synced));
    for _ in 0..3 {
        let since = Instant::now();
        assert_eq!(watch.next().await, Ok(WatchEvent::Synced));
        assert_eq!(since.elapsed().as_secs(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_may_watch_and_no_more() {
    let (store, backend) = watched(0);
    let mut watches: Vec<_> = (0..1000).map(|_| store.watch(all()).unwrap()).collect();
    assert!(matches!(store.watch(all()), Err(LockError::Overloaded)));
    assert_eq!(watches[0].next().await, Ok(WatchEvent::Synced));
    assert_eq!(backend.watches.load(Ordering::Relaxed), 1, "one mirror is enough for all");
    watches.pop();
    assert!(store.watch(all()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_backend_is_watched_only_while_somebody_watches() {
    let (store, backend) = watched(0);
    assert_eq!(backend.running.load(Ordering::Relaxed), 0);
    let mut watch = store.watch(all()).unwrap();
    watch.next().await.unwrap();
    assert_eq!(backend.running.load(Ordering::Relaxed), 1);
    drop(watch);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(backend.running.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_outlives_a_backend_that_cannot_be_watched_for_a_while() {
    let (store, backend) = watched(2);
    hold(&store, "r").await;
    let mut watch = store.watch(all()).unwrap();
    // There was no event before, so there is nothing to forget.
    let event = watch.next().await.unwrap();
    assert!(matches!(event, WatchEvent::Changed { .. }), "{event:?}");
    assert_eq!(watch.next().await, Ok(WatchEvent::Synced));
    assert_eq!(backend.watches.load(Ordering::Relaxed), 3);
}

/// Its watchers once got no more events.
#[tokio::test(start_paused = true)]
async fn a_watch_outlives_a_panic_of_the_backend() {
    let (store, backend) = watched(0);
    backend.panics.store(1, Ordering::Relaxed);
    let mut watch = store.watch(all()).unwrap();
    assert_eq!(watch.next().await, Ok(WatchEvent::Synced));
    assert_eq!(backend.watches.load(Ordering::Relaxed), 2);
}

/// It once got `Synced` before a lock that was granted just before it began.
#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_all_states_before_it_is_synced() {
    let (store, _) = watched(0);
    let mut first = store.watch(all()).unwrap();
    assert_eq!(first.next().await, Ok(WatchEvent::Synced));
    hold(&store, "a").await;
    assert!(matches!(first.next().await, Ok(WatchEvent::Changed { .. })));
    hold(&store, "b").await;
    let mut newcomer = store.watch(all()).unwrap();
    for _ in 0..2 {
        let event = newcomer.next().await;
        assert!(matches!(event, Ok(WatchEvent::Changed { .. })), "{event:?}");
    }
    assert_eq!(newcomer.next().await, Ok(WatchEvent::Synced));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_watch() {
    let (store, _) = watched(0);
    let mut watch = store.watch(all()).unwrap();
    watch.next().await.unwrap();
    store.drain();
    assert_eq!(watch.next().await, Err(LockError::ShuttingDown));
    assert!(matches!(store.watch(all()), Err(LockError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_replaced_does_not_wait_for_its_watchers() {
    let (store, _) = watched(0);
    let mut watch = store.watch(all()).unwrap();
    watch.next().await.unwrap();
    store.retire().await;
    assert_eq!(watch.next().await, Err(LockError::ShuttingDown));
}

#[tokio::test(start_paused = true)]
async fn the_backend_is_not_watched_for_clients_that_do_not_read_to_the_end() {
    let (store, backend) = watched(0);
    let mut stalled = store.watch(all()).unwrap();
    stalled.next().await.unwrap();
    store.end_watches();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(backend.running.load(Ordering::Relaxed), 0);
    drop(stalled);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_store_that_cannot_be_watched_ends() {
    let (store, _) = watched_with(1, BackendError::Unsupported("no".into()));
    let mut watch = store.watch(all()).unwrap();
    for _ in 0..2 {
        assert_eq!(watch.next().await, Err(LockError::Unsupported("no".into())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_begun_after_one_that_failed_tries_again() {
    let (store, _) = watched_with(1, BackendError::Unsupported("no".into()));
    let mut failed = store.watch(all()).unwrap();
    failed.next().await.unwrap_err();
    let mut again = store.watch(all()).unwrap();
    assert_eq!(again.next().await, Ok(WatchEvent::Synced));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_skips_many_locks_lets_others_run() {
    const LOCKS: usize = 20_000;
    let (store, _) = watched(0);
    for number in 0..LOCKS {
        hold(&store, &number.to_string()).await;
    }
    let mut complete = store.watch(Scope::of("", |_| false)).unwrap();
    assert_eq!(complete.next().await, Ok(WatchEvent::Synced));
    let looked_at = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&looked_at);
    let none = Scope::of("", move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        false
    });
    let mut watch = store.watch(none).unwrap();
    let event = poll!(pin!(watch.next()));
    assert!(event.is_pending());
    let looked_at = looked_at.load(Ordering::Relaxed);
    assert!(looked_at < LOCKS, "{looked_at}");
}

#[tokio::test(start_paused = true)]
async fn a_list_has_what_its_scope_accepts() {
    let (store, _) = watched(0);
    for number in 0..30 {
        hold(&store, &format!("a/{number}")).await;
    }
    let even = |resource: &ResourceId| resource.as_str().ends_with(['0', '2', '4', '6', '8']);
    let mut listing = Listing {
        scope: Scope::of("a/", even),
        holder_prefix: String::new(),
        page: PageRequest::first(4),
    };
    let mut listed = 0;
    loop {
        let page = store.list(&listing).await.unwrap();
        assert!(page.items.len() <= 4);
        assert!(page.items.iter().all(|lock| even(&lock.resource)));
        listed += page.items.len();
        listing.page.after = page.next;
        if listing.page.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 15);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_grants_of_a_scope_are_ended_in_one_call() {
    let (store, backend) = watched(0);
    for number in 0..1000 {
        hold(&store, &format!("a/{number}")).await;
    }
    let of = EndOf::Scope { scope: all(), holder_prefix: String::new() };
    let ended = store
        .end(&EndRequest { of, dry_run: false, limit: 1000 }, &|_, _, _| {})
        .await
        .unwrap();
    assert_eq!(ended.locks.len(), 1000);
    assert_eq!(backend.memory.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_taken_again_while_a_scope_is_ended_is_left_alone() {
    let (store, _) = watched(0);
    let before = hold(&store, "r").await;
    let dry = |dry_run| {
        let of = EndOf::Resource("r".parse().unwrap(), before.id);
        EndRequest { of, dry_run, limit: 1 }
    };
    assert_eq!(store.end(&dry(true), &|_, _, _| {}).await.unwrap().locks.len(), 1);
    let lock_id = before.lock_id.clone();
    let release = UnlockRequest::owner("r".parse().unwrap(), lock_id);
    store.unlock(release).await.unwrap();
    hold(&store, "r").await;
    assert_eq!(
        store.end(&dry(false), &|_, _, _| {}).await,
        Err(LockError::NotFound { held: true })
    );
    let refused = store.try_lock(request("r")).await.unwrap_err();
    assert!(matches!(refused, LockError::Locked { .. }));
}
