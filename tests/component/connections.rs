//! Callers that go away, and callers that are in a hurry.

use std::{io::Read as _, os::unix::net::UnixStream, time::Duration};

use leasehold_testkit::leasehold::Leasehold;
use tokio::{runtime::Builder, sync::mpsc};

use crate::client::{Client, eventually};

/// Long before a grant that nobody has would end.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Trap: component 10
#[tokio::test]
async fn a_grant_whose_caller_cancelled_its_wait_goes_to_the_next_at_once() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    let gone = client.waiting("r");
    client.queued("r", &gone).await;
    let next = client.waiting("r");
    gone.abort();
    client.unlock("r", &grant.lock_id).await.unwrap();
    tokio::time::timeout(AT_ONCE, next).await.expect("the next in line").unwrap().unwrap();
}

/// Trap: component 10
#[tokio::test]
async fn a_grant_whose_caller_disconnected_goes_to_the_next_at_once() {
    let leasehold = Leasehold::serve("memory", &[]);
    let socket = leasehold.socket("memory");
    let client = Client::initialised(&socket).await;
    let grant = client.try_lock("r").await.unwrap();
    // A separate runtime: its end closes the socket abruptly, like the death of
    // the caller's process.
    let gone = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let waiting =
        gone.spawn(async move { Client::connect(&socket).await.lock("r", None).await });
    client.queued("r", &waiting).await;
    let next = client.waiting("r");
    tokio::task::spawn_blocking(move || drop(gone)).await.unwrap();
    client.unlock("r", &grant.lock_id).await.unwrap();
    tokio::time::timeout(AT_ONCE, next).await.expect("the next in line").unwrap().unwrap();
}

#[tokio::test]
async fn a_thousand_waits_cancelled_at_once_leave_the_connection_to_the_others() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    let stays = client.waiting("r");
    client.queued("r", &stays).await;
    let hasty: Vec<_> = (0..1_000).map(|_| client.waiting("r")).collect();
    tokio::task::yield_now().await;
    hasty.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(client.renew("r", &grant.lock_id).await.is_ok());
    client.unlock("r", &grant.lock_id).await.unwrap();
    tokio::time::timeout(AT_ONCE, stays).await.expect("the first in line").unwrap().unwrap();
}

/// h2 treats many small unread frames as an attack: its limit must be above the
/// limits of waiters.
#[tokio::test]
async fn ten_thousand_waits_that_begin_at_once_share_a_connection() {
    const WAITERS: usize = 10_000;
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    let (granted, mut grants) = mpsc::channel(1);
    let waits: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (client, granted) = (client.clone(), granted.clone());
            tokio::spawn(async move {
                let grant = client.lock("r", None).await;
                granted.send(grant).await.unwrap();
            })
        })
        .collect();
    client.unlock("r", &grant.lock_id).await.unwrap();
    for _ in 0..100 {
        let grant = grants.recv().await.unwrap().unwrap();
        client.unlock("r", &grant.lock_id).await.unwrap();
    }
    waits.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_wait_is_answered_before_its_deadline() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    client.try_lock("r").await.unwrap();
    client.answered_in_time("r", Duration::from_secs(2)).await;
}

#[tokio::test]
async fn nothing_is_held_after_a_deadline_that_passed() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    client.lock("r", Some(Duration::from_millis(500))).await.unwrap_err();
    client.unlock("r", &grant.lock_id).await.unwrap();
    client.try_lock("r").await.unwrap();
}

#[tokio::test]
async fn a_peer_that_says_nothing_is_cut_off() {
    let leasehold = Leasehold::serve("memory", &[]);
    let mut silent = UnixStream::connect(leasehold.socket("memory")).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let ended = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        silent.read_to_end(&mut bytes)
    });
    let ended = ended.await.unwrap();
    assert!(
        !matches!(&ended, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock),
        "still connected"
    );
}

#[tokio::test]
async fn a_request_larger_than_any_leaves_the_connection_alive() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let huge = "r".repeat(2 * 1024 * 1024);
    client.try_lock(&huge).await.unwrap_err();
    eventually(AT_ONCE, "an answer", async || client.try_lock("r").await.ok()).await;
}
