//! LockKeepAlive: the renewals of many locks over one stream.

use std::{collections::BTreeMap, time::Duration};

use leasehold_proto::locks::{LockKeepAliveRequest, LockKeepAliveResponse, LockRequest};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use crate::{
    alpha2_grpc::{lock, request, ttl, unlock_request},
    harness::{Harness, PATIENCE, STORE, eventually, reason},
};

/// An open stream.
struct KeepAlive {
    requests: mpsc::Sender<LockKeepAliveRequest>,
    answers: Streaming<LockKeepAliveResponse>,
}

impl KeepAlive {
    async fn open(harness: &Harness) -> Self {
        let (requests, sent) = mpsc::channel(16);
        let sent = ReceiverStream::new(sent);
        let answers = harness.locks().await.lock_keep_alive(sent).await.unwrap().into_inner();
        Self { requests, answers }
    }

    async fn next(&mut self) -> Result<Option<LockKeepAliveResponse>, Status> {
        timeout(PATIENCE, self.answers.message()).await.expect("an answer")
    }

    /// Sends one request and returns its answer.
    async fn ask(&mut self, request: LockKeepAliveRequest) -> LockKeepAliveResponse {
        let id = request.id;
        self.requests.send(request).await.unwrap();
        let answer = self.next().await.unwrap().unwrap();
        assert_eq!(answer.id, id);
        answer
    }
}

fn of(id: u64, resource: &str, lock_id: &str) -> LockKeepAliveRequest {
    LockKeepAliveRequest {
        id,
        store_name: STORE.into(),
        resource_id: resource.into(),
        lock_id: lock_id.into(),
        ..Default::default()
    }
}

async fn take(harness: &Harness, request: LockRequest) -> String {
    let unrenewed = LockRequest { no_renewal: true, ..request };
    lock(&mut harness.locks().await, unrenewed).await.unwrap().lock_id
}

#[tokio::test]
async fn a_lock_is_kept_by_its_stream_past_its_ttl() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, LockRequest { ttl: ttl(4000), ..request("r") }).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    for id in 0..10 {
        sleep(Duration::from_millis(500)).await;
        let renewal = LockKeepAliveRequest { ttl: ttl(4000), ..of(id, "r", &lock_id) };
        assert_eq!(keep_alive.ask(renewal).await.ttl, ttl(4000));
    }
    assert_eq!(harness.engine.held(), 1);
}

#[tokio::test]
async fn each_request_has_its_answer() {
    let harness = Harness::start().await;
    let mut locks = BTreeMap::new();
    for id in 0..100 {
        let resource = format!("r{id}");
        let held = LockRequest { ttl: ttl(600_000), ..request(&resource) };
        let lock_id = take(&harness, held).await;
        locks.insert(id, (resource, lock_id));
    }
    let mut keep_alive = KeepAlive::open(&harness).await;
    let requests = keep_alive.requests.clone();
    let all = locks.clone();
    let sending = tokio::spawn(async move {
        for (id, (resource, lock_id)) in all {
            requests.send(of(id, &resource, &lock_id)).await.unwrap();
        }
    });
    while !locks.is_empty() {
        let answer = keep_alive.next().await.unwrap().unwrap();
        assert!(answer.ttl.is_some() && answer.reason.is_empty(), "{answer:?}");
        assert!(locks.remove(&answer.id).is_some(), "{} has two answers", answer.id);
    }
    sending.await.unwrap();
}

#[tokio::test]
async fn a_lock_that_fails_does_not_end_the_stream() {
    let harness = Harness::start().await;
    let held = take(&harness, request("r")).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    let long = "x".repeat(257);
    for (bad, reason, held) in [
        (of(1, "free", "id"), "LOCK_NOT_FOUND", false),
        (of(2, "r", "another"), "LOCK_NOT_FOUND", true),
        (of(3, "", "id"), "INVALID_REQUEST", false),
        (of(4, "a||b", "id"), "INVALID_REQUEST", false),
        (of(5, "r", ""), "INVALID_REQUEST", false),
        (of(6, "r", &long), "INVALID_REQUEST", false),
        (
            LockKeepAliveRequest { ttl: ttl(48 * 3_600_000), ..of(7, "r", "id") },
            "INVALID_REQUEST",
            false,
        ),
        (
            LockKeepAliveRequest { store_name: "no".into(), ..of(8, "r", "id") },
            "STORE_NOT_FOUND",
            false,
        ),
        (LockKeepAliveRequest::default(), "INVALID_REQUEST", false),
    ] {
        let answer = keep_alive.ask(bad).await;
        assert_eq!((answer.reason.as_str(), answer.held), (reason, held), "{answer:?}");
        assert!(answer.ttl.is_none() && !answer.message.is_empty(), "{answer:?}");
    }
    assert!(keep_alive.ask(of(9, "r", &held)).await.ttl.is_some());
}

#[tokio::test]
async fn a_lost_lock_is_reported_with_its_cause() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, LockRequest { ttl: ttl(2000), ..request("r") }).await;
    eventually("it expired", || harness.engine.held() == 0).await;
    eventually("the store has ended it, too", || harness.memory.records() == 0).await;
    let answer = KeepAlive::open(&harness).await.ask(of(1, "r", &lock_id)).await;
    assert_eq!(answer.reason, "LOCK_LOST");
    assert!(answer.message.contains("expired"), "{answer:?}");
}

#[tokio::test]
async fn a_lock_in_a_namespace_is_kept_by_its_namespace() {
    let harness = Harness::start().await;
    let namespace = vec!["a".to_owned()];
    let held = LockRequest { namespace: namespace.clone(), ..request("r") };
    let lock_id = take(&harness, held).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    assert_eq!(keep_alive.ask(of(1, "r", &lock_id)).await.reason, "LOCK_NOT_FOUND");
    let within = LockKeepAliveRequest { namespace, ..of(2, "r", &lock_id) };
    assert!(keep_alive.ask(within).await.ttl.is_some());
}

#[tokio::test]
async fn the_end_of_the_requests_is_the_end_of_the_answers() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, request("r")).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    keep_alive.ask(of(1, "r", &lock_id)).await;
    let KeepAlive { requests, mut answers } = keep_alive;
    drop(requests);
    assert_eq!(timeout(PATIENCE, answers.message()).await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn closing_the_stream_changes_no_lock() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, request("r")).await;
    for delay_us in (0..2000).step_by(100) {
        let keep_alive = KeepAlive::open(&harness).await;
        keep_alive.requests.send(of(1, "r", &lock_id)).await.unwrap();
        sleep(Duration::from_micros(delay_us)).await;
        drop(keep_alive);
        assert_eq!((harness.engine.held(), harness.memory.records()), (1, 1));
    }
    harness.locks().await.unlock(unlock_request("r", &lock_id)).await.unwrap();
}

/// Other requests must be complete within 10 s. The sockets and the server's clock are
/// real, so this time has to pass.
#[tokio::test]
async fn a_stream_may_be_silent_for_long() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, LockRequest { ttl: ttl(60_000), ..request("r") }).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    keep_alive.ask(of(1, "r", &lock_id)).await;
    sleep(Duration::from_secs(11)).await;
    assert!(keep_alive.ask(of(2, "r", &lock_id)).await.ttl.is_some());
}

#[tokio::test]
async fn a_drain_ends_the_stream_and_leaves_its_locks() {
    let mut harness = Harness::start().await;
    let lock_id = take(&harness, request("r")).await;
    let mut keep_alive = KeepAlive::open(&harness).await;
    keep_alive.ask(of(1, "r", &lock_id)).await;
    harness.begin_to_stop();
    let end = keep_alive.next().await.unwrap_err();
    assert_eq!((end.code(), reason(&end, "").0), (Code::Unavailable, "SHUTTING_DOWN".into()));
    timeout(PATIENCE, harness.stop()).await.unwrap();
    assert_eq!(harness.memory.records(), 1);
}
