//! Holders that come late, deadlines that come in between, clocks that jump,
//! and what is left of tries in vain.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_lock::{
    AcquireRequest, BackendError, Clock, LockError, RenewRequest, Store, UnlockRequest,
};
use tokio::time::{Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_late_holder_finds_nothing_and_ends_nothing,
        failed_tries_hand_their_lease_on,
        a_renewal_whose_caller_left_leaves_no_lease,
        a_deadline_that_races_the_hand_over_never_loses_it,
        a_restart_every_half_ttl_ends_no_grant_early,
        a_stepped_clock_changes_no_expiry,
    ]
}

/// How long a wait lasts that races its hand-over, and how much sooner or later
/// the next release comes.
const WITHIN: Duration = Duration::from_millis(40);
const STEP: Duration = Duration::from_millis(1);

/// A has expired, B holds, A comes back.
/// Trap: etcd 13, etcd 22
async fn a_late_holder_finds_nothing_and_ends_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let short = attempt("r", Duration::from_secs(1));
    let late = a.try_lock(&short, until()).await.unwrap();
    let next = soon(lock(&b, "r")).await;
    let held = BackendError::NotHeld { held: true };
    assert_eq!(renew(&a, "r", &late.lock_id, TTL).await, Err(held.clone()));
    assert_eq!(unlock(&a, "r", &late).await, Err(held.clone()));
    assert_eq!(undo(&a, &short).await, Ok(()), "nothing of it is left to undo");
    renew(&b, "r", &next.lock_id, TTL).await.unwrap();
    unlock(&b, "r", &next).await.unwrap();
    assert!(keys(&server, "/t/r/").await.is_empty());
}

/// Each of these tries takes a lease and fails in its transaction.
/// Trap: etcd 3
async fn failed_tries_hand_their_lease_on(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    for n in 0..40 {
        try_lock(&a, &format!("r{n}")).await.unwrap();
    }
    let before = server.leases().await;
    for n in 0..40 {
        let tried = try_lock(&b, &format!("r{n}")).await;
        assert!(matches!(tried, Err(BackendError::Locked { .. })), "{tried:?}");
    }
    assert_eq!(server.leases().await, before + 1, "one lease did for all of them");
    b.close().await;
    eventually("that one is revoked", || async { server.leases().await == before }).await;
}

async fn store(url: &str, clock: Clock) -> Store {
    let items = [("endpoints", url), ("keyPrefixPath", "/t")];
    let items = items.map(|(key, value)| (key.to_owned(), value.to_owned()));
    leasehold_etcd::KIND.open(items, clock, None).await.unwrap()
}

fn asked(ttl: Duration) -> AcquireRequest {
    AcquireRequest { ttl: Some(ttl), ..AcquireRequest::new("r".parse().unwrap()) }
}

fn unlocking(lock_id: &str) -> UnlockRequest {
    UnlockRequest::owner("r".parse().unwrap(), lock_id.parse().unwrap())
}

/// A renewal with another TTL takes a lease of that TTL; whenever its caller
/// leaves, the lease is used or given back.
async fn a_renewal_whose_caller_left_leaves_no_lease(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    for round in 0..40u64 {
        let longer = TTL + Duration::from_secs(1 + round);
        let renewal = renew(&backend, "r", &grant.lock_id, longer);
        let _ = tokio::time::timeout(Duration::from_micros(50 * round), renewal).await;
    }
    // On a slow disk, the forty leases can take longer than one unlock waits.
    let mut unlocked = unlock(&backend, "r", &grant).await;
    let mut was_lost = false;
    for _ in 0..5 {
        match unlocked {
            Err(BackendError::Unknown(_)) => was_lost = true,
            Err(BackendError::Unavailable(_)) => {}
            _ => break,
        }
        unlocked = unlock(&backend, "r", &grant).await;
    }
    let gone = Err(BackendError::NotHeld { held: false });
    assert!(unlocked == Ok(()) || was_lost && unlocked == gone, "{unlocked:?}");
    backend.close().await;
    eventually("no lease outlives the store", async || server.leases().await == 0).await;
}

/// An error means that nothing is held, and a grant is one, wherever
/// the deadline meets the hand-over. Ten thousand rounds of this are run on the
/// domain in paused time; here a server answers, so there are fewer.
/// Trap: etcd 9
async fn a_deadline_that_races_the_hand_over_never_loses_it(version: Version) {
    let server = EtcdServer::start(version).await;
    let open = || store(&server.url, Clock::system());
    let mut store = open().await;
    let (mut granted, mut refused) = (0, 0);
    let mut release_after = WITHIN;
    for round in 0..200 {
        let held = store.try_lock(asked(TTL)).await.unwrap();
        held.receipt.accept();
        let mut within = asked(TTL);
        let started = Instant::now();
        within.deadline = Some(started + WITHIN);
        let waiter = store.clone();
        let wait = tokio::spawn(async move { waiter.lock(within).await });
        while started.elapsed() < release_after {
            tokio::task::yield_now().await;
        }
        store.unlock(unlocking(held.lock_id.as_str())).await.unwrap();
        match wait.await.unwrap() {
            // Later or sooner next time: so it stays close to the race.
            Ok(next) => {
                granted += 1;
                release_after += STEP;
                next.receipt.accept();
                store.unlock(unlocking(next.lock_id.as_str())).await.unwrap();
            }
            Err(error @ (LockError::WaitDeadline | LockError::OutcomeUnknown(_))) => {
                refused += 1;
                release_after = release_after.saturating_sub(STEP);
                // What is unknown is undone before the store ends.
                if error != LockError::WaitDeadline {
                    store.retire().await;
                    store = open().await;
                }
            }
            Err(error) => panic!("{error:?}"),
        }
        let left = keys(&server, "/t/r/").await;
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    assert!(granted > 0 && refused > 0, "no race: {granted} granted, {refused} refused");
}

/// A new leader starts every TTL again, so that on etcd a TTL is the
/// least that a grant lasts, and a takeover may come later.
/// Trap: etcd 18
async fn a_restart_every_half_ttl_ends_no_grant_early(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let a = open(&server.url).await;
    // On a busy machine etcd may be away for long.
    let b = open_with(&[
        ("endpoints", server.url.as_str()),
        ("keyPrefixPath", "/t"),
        ("operationTimeout", "30s"),
    ])
    .await;
    // Long enough that a waiter would be early that took an outage for the end.
    let ttl = Duration::from_secs(5);
    let grant = a.try_lock(&attempt("r", ttl), until()).await.unwrap();
    let wait = lock(&b, "r");
    queued(&server, "r", 1).await;
    for _ in 0..2 {
        sleep(ttl / 2).await;
        server.kill();
        server.restart();
        server.ready().await;
    }
    let next = granted_within(3 * SOON, wait).await;
    assert!(next.since >= grant.since + grant.ttl, "it ended before its TTL");
    assert!(token(&next) > token(&grant));
    let late = renew(&a, "r", &grant.lock_id, TTL).await;
    assert_eq!(late, Err(BackendError::NotHeld { held: true }));
}

/// The wall clock of the process decides nothing, wherever it is set.
/// Trap: etcd 19
async fn a_stepped_clock_changes_no_expiry(version: Version) {
    const HOUR_US: u64 = 3_600_000_000;
    let server = EtcdServer::start(version).await;
    let now_us = Arc::new(AtomicU64::new(HOUR_US * 500_000));
    let clock = {
        let now_us = Arc::clone(&now_us);
        Clock::from_fn(move || now_us.load(Ordering::Relaxed))
    };
    let store = store(&server.url, clock).await;
    let ttl = Duration::from_secs(2);
    let mut last = None;
    for step_us in [HOUR_US * 500_001, HOUR_US * 499_999] {
        let granted = store.try_lock(asked(ttl)).await.unwrap();
        granted.receipt.accept();
        assert!(granted.token > last);
        now_us.store(step_us, Ordering::Relaxed);
        let renewal = RenewRequest {
            resource: "r".parse().unwrap(),
            lock_id: granted.lock_id.clone(),
            ttl: Some(ttl),
        };
        let renewed = store.renew(renewal).await.unwrap();
        let next = tokio::time::timeout(SOON, store.lock(asked(ttl))).await.unwrap().unwrap();
        assert!(next.since >= renewed.since + ttl, "it ended before its TTL");
        assert!(next.token > granted.token);
        last = next.token;
        next.receipt.accept();
        store.unlock(unlocking(next.lock_id.as_str())).await.unwrap();
    }
}
