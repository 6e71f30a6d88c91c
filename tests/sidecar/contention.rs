//! Many callers that give up while they are answered.

use std::time::Duration;

use http::Method;
use leasehold_proto::locks::{LockRequest, UnlockRequest, locks_client::LocksClient};
use serde_json::json;
use tonic::{
    Code, Request,
    transport::{Channel, Endpoint},
};

use crate::{
    binary::{Binary, component},
    harness::PATIENCE,
};
use tokio::time::{Instant, sleep};

const CALLERS: usize = 60;
const ROUNDS: usize = 30;
const GIVES_UP_AFTER: Duration = Duration::from_millis(100);
/// Short enough that some are granted, long enough that most give up.
const HELD_FOR: Duration = Duration::from_millis(5);
const LOCK: &str = "/v1.0-alpha2/lock/locks/r";

/// Locks with a deadline, again and again, and unlocks what it is granted.
/// Returns how often it was not granted the lock.
async fn contend(mut locks: LocksClient<Channel>) -> usize {
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let mut request = Request::new(LockRequest {
            store_name: "locks".into(),
            resource_id: "r".into(),
            ..Default::default()
        });
        // Then the client ends the call by itself, as every gRPC client does.
        request.set_timeout(GIVES_UP_AFTER);
        let Ok(grant) = locks.lock(request).await else {
            refused += 1;
            continue;
        };
        sleep(HELD_FOR).await;
        let unlock = UnlockRequest {
            store_name: "locks".into(),
            resource_id: "r".into(),
            lock_id: grant.into_inner().lock_id,
            ..Default::default()
        };
        match locks.unlock(unlock).await {
            Ok(_) => {}
            // It took longer than the limit of holding a lock here.
            Err(lost) => assert_eq!(lost.code(), Code::Aborted, "{lost:?}"),
        }
    }
    refused
}

/// A grant whose answer came as its caller gave up was once renewed for ever:
/// there was one within 2.4 s. Answers now come before the deadline with a
/// margin, and a grant that its caller misses nevertheless ends with the limit
/// of holding a lock.
/// Trap: sidecar 49
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_left_when_its_callers_gave_up() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.memory", "[]");
    let sidecar = Binary::start(yaml.path(), &["--max-hold-default", "3s"]).await;
    let callers = (0..CALLERS).map(|_| {
        let endpoint = Endpoint::from_shared(format!("http://{}", sidecar.grpc)).unwrap();
        tokio::spawn(contend(LocksClient::new(endpoint.connect_lazy())))
    });
    let mut refused = 0;
    for caller in callers.collect::<Vec<_>>() {
        refused += caller.await.unwrap();
    }
    // On a busy machine each grant may miss its caller, so none need to have been seen.
    assert!(refused > 0, "nobody contended for the lock");

    let give_up = Instant::now() + PATIENCE;
    let held = loop {
        let answer = sidecar.post(LOCK, r#"{"immediate":true}"#).await;
        if answer.status == 200 {
            break answer.json()["lockID"].clone();
        }
        assert!(Instant::now() < give_up, "nobody holds it, and it is not free: {answer:?}");
        sleep(Duration::from_millis(20)).await;
    };
    let unlock = json!({ "lockID": held }).to_string();
    let unlocked = sidecar.call(Method::DELETE, LOCK, unlock).await;
    assert_eq!(unlocked.status, 204, "{unlocked:?}");
}
