//! The end of a process: no lock is broken, and nothing stays behind.

use std::time::Duration;

use leasehold_testkit::{leasehold::Leasehold, process::Signal};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::client::{Client, channel, eventually, reason};

const SOON: Duration = Duration::from_secs(20);

/// Begins a drain. What is returned calls until it is dropped: a second without calls would be the
/// end of the drain.
async fn draining(leasehold: &Leasehold, client: &Client) -> AbortOnDropHandle<()> {
    let client = client.clone();
    let calls = tokio::spawn(async move {
        while client.renew("nobodys", "id").await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    });
    let mut health = HealthClient::new(channel(&leasehold.socket("memory")).await);
    leasehold.signal(Signal::TERM);
    eventually(SOON, "NOT_SERVING", async || {
        let answer = health.check(HealthCheckRequest::default()).await.unwrap();
        (answer.into_inner().status() == ServingStatus::NotServing).then_some(())
    })
    .await;
    AbortOnDropHandle::new(calls)
}

#[tokio::test]
async fn a_try_is_refused_while_renewals_and_unlocks_are_served() {
    let mut leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    let _calls = draining(&leasehold, &client).await;
    assert_eq!(reason(&client.try_lock("other").await.unwrap_err()), "SHUTTING_DOWN");
    assert_eq!(reason(&client.lock("other", None).await.unwrap_err()), "SHUTTING_DOWN");
    assert_eq!(reason(&client.init(&[("ttl", "9s")]).await.unwrap_err()), "SHUTTING_DOWN");
    client.renew("r", &grant.lock_id).await.unwrap();
    client.unlock("r", &grant.lock_id).await.unwrap();
    assert_eq!(leasehold.exited().code(), Some(0));
}

#[tokio::test]
async fn a_wait_ends_with_shutting_down() {
    let mut leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    client.try_lock("r").await.unwrap();
    let waiting = client.waiting("r");
    client.queued("r", &waiting).await;
    leasehold.signal(Signal::INT);
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "SHUTTING_DOWN");
    assert_eq!(leasehold.exited().code(), Some(0));
}

#[tokio::test]
async fn a_wait_on_a_replaced_store_ends_with_shutting_down_too() {
    let mut leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    client.try_lock("r").await.unwrap();
    let waiting = client.waiting("r");
    client.queued("r", &waiting).await;
    client.init(&[("ttl", "9s")]).await.unwrap();
    leasehold.signal(Signal::TERM);
    assert_eq!(reason(&waiting.await.unwrap().unwrap_err()), "SHUTTING_DOWN");
    assert_eq!(leasehold.exited().code(), Some(0));
}

#[tokio::test]
async fn the_sockets_are_gone_after_it() {
    let mut leasehold = Leasehold::serve("memory", &["--store", "memory=second"]);
    leasehold.ready("second");
    leasehold.signal(Signal::TERM);
    assert_eq!(leasehold.exited().code(), Some(0));
    assert!(!leasehold.socket("memory").exists() && !leasehold.socket("second").exists());
}

#[tokio::test]
async fn with_nobody_connected_it_ends_at_once() {
    let drained = || {
        let mut leasehold = Leasehold::serve("memory", &[]);
        let started = Instant::now();
        leasehold.signal(Signal::TERM);
        assert_eq!(leasehold.exited().code(), Some(0));
        started.elapsed()
    };
    // With an open connection it takes at least a second. A busy machine may slow one
    // drain down, but hardly each of three.
    let took = [drained(), drained(), drained()];
    let fastest = took.into_iter().min().unwrap();
    assert!(fastest < Duration::from_millis(900), "{took:?}");
}

#[tokio::test]
async fn callers_that_never_stop_end_it_within_ten_seconds() {
    let mut leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    let caller = tokio::spawn(async move {
        while client.renew("r", &grant.lock_id).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    let started = Instant::now();
    leasehold.signal(Signal::TERM);
    let ended = tokio::task::spawn_blocking(move || leasehold.exited()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
    // Twice the limit, for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    caller.await.unwrap();
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let _calls = draining(&leasehold, &client).await;
    leasehold.signal(Signal::TERM);
    assert_eq!(leasehold.exited().code(), Some(1));
}

/// SIGHUP ended the process without a drain.
#[tokio::test]
async fn sighup_ends_nothing() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let grant = client.try_lock("r").await.unwrap();
    leasehold.signal(Signal::HUP);
    // A signal that ends the process does so before all of these are answered.
    for _ in 0..100 {
        client.renew("r", &grant.lock_id).await.unwrap();
    }
}
