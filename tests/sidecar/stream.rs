//! alpha2's stream over gRPC, which lives as long as the lock.

use std::time::Duration;

use leasehold_proto::locks::{
    LockAcquired, LockRequest, LockServerStream, lock_server_stream::LockServerStream as Line,
};
use leasehold_sidecar::Hooks;
use tokio::time::{sleep, timeout};
use tonic::{Code, Request, Status, Streaming};

use crate::{
    alpha2_grpc::{force_request, request, ttl, unlock_request},
    harness::{HOLDER, Harness, PATIENCE, eventually, memory, options, reason},
};

pub async fn acquired(stream: &mut Streaming<LockServerStream>) -> LockAcquired {
    loop {
        let line = timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
        match line.lock_server_stream.unwrap() {
            Line::LockAcquired(acquired) => return acquired,
            Line::Ping(_) => {}
        }
    }
}

/// The end of the stream, without pings.
pub async fn end(stream: &mut Streaming<LockServerStream>) -> Result<(), Status> {
    loop {
        match timeout(PATIENCE, stream.message()).await.unwrap() {
            Ok(Some(line)) => assert_eq!(
                line.lock_server_stream,
                Some(Line::Ping(leasehold_proto::locks::LockPing {}))
            ),
            Ok(None) => return Ok(()),
            Err(status) => return Err(status),
        }
    }
}

async fn open(harness: &Harness, request: LockRequest) -> Streaming<LockServerStream> {
    harness.locks().await.lock_stream(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_disconnect_releases_the_lock_at_once() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, request("r")).await;
    let grant = acquired(&mut stream).await;
    assert!(grant.fencing_token > 0 && !grant.lock_id.is_empty() && grant.ttl.is_some());
    assert_eq!(harness.memory.records(), 1);
    drop(stream);
    eventually("it is free", || harness.memory.records() == 0).await;
    assert_eq!(harness.engine.held(), 0);
}

#[tokio::test]
async fn an_unlock_ends_the_stream_well() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, request("r")).await;
    let lock_id = acquired(&mut stream).await.lock_id;
    harness.locks().await.unlock(unlock_request("r", &lock_id)).await.unwrap();
    end(&mut stream).await.unwrap();
    assert_eq!(harness.memory.records(), 0);
}

/// Trap: sidecar 17
#[tokio::test]
async fn a_forced_lock_ends_the_stream_as_lost() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, request("r")).await;
    acquired(&mut stream).await;
    harness.locks().await.force_unlock(force_request("r")).await.unwrap();
    let lost = end(&mut stream).await.unwrap_err();
    assert_eq!(lost.code(), Code::Aborted);
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
}

#[tokio::test]
async fn max_hold_and_the_ttl_end_the_stream_as_lost() {
    let harness = Harness::start().await;
    let short: Option<prost_types::Duration> = Duration::from_millis(300).try_into().ok();
    for (held, cause) in [
        (LockRequest { max_hold: short, ..request("r") }, "max_hold"),
        (LockRequest { ttl: short, no_renewal: true, ..request("r") }, "expired"),
    ] {
        let mut stream = open(&harness, held).await;
        acquired(&mut stream).await;
        let lost = end(&mut stream).await.unwrap_err();
        assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some(cause.into())));
        eventually("it is free", || harness.memory.records() == 0).await;
    }
}

#[tokio::test]
async fn a_drain_releases_the_lock_and_ends_the_stream() {
    let mut harness = Harness::start().await;
    let mut held = open(&harness, request("r")).await;
    acquired(&mut held).await;
    let mut waiting = open(&harness, LockRequest { immediate: false, ..request("r") }).await;
    harness.begin_to_stop();
    for stream in [&mut held, &mut waiting] {
        let ended = end(stream).await.unwrap_err();
        assert_eq!(ended.code(), Code::Unavailable);
        assert_eq!(reason(&ended, "").0, "SHUTTING_DOWN");
    }
    timeout(PATIENCE, harness.stop()).await.unwrap();
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn an_immediate_refusal_and_a_bad_request_are_no_stream() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, request("r")).await;
    acquired(&mut stream).await;
    let mut locks = harness.locks().await;
    let refused = locks.lock_stream(request("r")).await.unwrap_err();
    assert_eq!(reason(&refused, "holder"), ("RESOURCE_LOCKED".into(), Some(HOLDER.into())));
    let bad = LockRequest { immediate: false, ..request("a||b") };
    let refused = locks.lock_stream(bad).await.unwrap_err();
    assert_eq!(reason(&refused, "").0, "INVALID_REQUEST");
}

#[tokio::test]
async fn a_waiting_stream_gets_the_lock_in_its_turn_and_its_deadline_ends_it() {
    let harness = Harness::start().await;
    let mut first = open(&harness, request("r")).await;
    let token = acquired(&mut first).await.fencing_token;
    let waiting = LockRequest { immediate: false, ..request("r") };

    let mut hasty = Request::new(waiting.clone());
    hasty.set_timeout(Duration::from_secs(2));
    let mut hasty = harness.locks().await.lock_stream(hasty).await.unwrap().into_inner();
    let ended = end(&mut hasty).await.unwrap_err();
    assert_eq!(reason(&ended, "").0, "WAIT_DEADLINE");

    let mut second = open(&harness, waiting).await;
    drop(first);
    let granted = acquired(&mut second).await;
    assert!(granted.fencing_token > token);
}

#[tokio::test]
async fn the_end_of_a_wait_is_reported_on_the_stream() {
    let harness = Harness::start().await;
    let mut held = open(&harness, request("r")).await;
    acquired(&mut held).await;
    let waiting = LockRequest { immediate: false, wait: ttl(300), ..request("r") };
    let ended = end(&mut open(&harness, waiting).await).await.unwrap_err();
    assert_eq!(reason(&ended, "").0, "WAIT_DEADLINE");
}

/// A call's deadline would end the stream, and with it the lock.
#[tokio::test]
async fn a_wait_does_not_end_a_stream_that_has_the_lock() {
    let harness = Harness::start().await;
    let waiting = LockRequest { immediate: false, wait: ttl(300), ..request("r") };
    let mut stream = open(&harness, waiting).await;
    acquired(&mut stream).await;
    assert!(timeout(Duration::from_secs(1), end(&mut stream)).await.is_err(), "it ended");
    assert_eq!(harness.memory.records(), 1);
}

/// Trap: sidecar 10
#[tokio::test]
async fn disconnecting_at_any_moment_leaves_nothing_behind() {
    let harness = Harness::start().await;
    let locks = harness.locks().await;
    for delay_us in (0..2000).step_by(50) {
        let mut locks = locks.clone();
        let call = tokio::spawn(async move {
            let mut stream = locks.lock_stream(request("r")).await.unwrap().into_inner();
            acquired(&mut stream).await
        });
        sleep(Duration::from_micros(delay_us)).await;
        call.abort();
        let _ = call.await;
        eventually("it is free", || harness.memory.records() == 0).await;
        eventually("nothing is renewed", || harness.engine.held() == 0).await;
    }
}

/// The first sidecar once unlocked it by its lock ID, and a third got it while the second
/// still held it.
/// Trap: sidecar 22
#[tokio::test]
async fn the_end_of_a_stream_spares_a_lock_that_a_repeated_request_has_got_at_another_sidecar()
{
    let here = Harness::start().await;
    let there =
        Harness::over(options(), Hooks::default(), here.stores.clone(), memory().0).await;
    let repeated = LockRequest { request_id: "secret".into(), ..request("r") };
    let mut first = open(&here, repeated.clone()).await;
    let lock_id = acquired(&mut first).await.lock_id;
    let mut second = open(&there, repeated.clone()).await;
    assert_eq!(acquired(&mut second).await.lock_id, lock_id);
    drop(first);
    eventually("the stream has ended", || here.engine.held() == 0).await;
    // A release would be sent within this time; there is no event if none is.
    sleep(Duration::from_millis(50)).await;
    assert_eq!(here.memory.records(), 1);
    drop(second);
    eventually("it is free", || here.memory.records() == 0).await;
}

#[tokio::test]
async fn a_repeated_request_takes_the_stream_over() {
    let harness = Harness::start().await;
    let repeated = LockRequest { request_id: "secret".into(), ..request("r") };
    let mut first = open(&harness, repeated.clone()).await;
    let lock_id = acquired(&mut first).await.lock_id;
    let mut second = open(&harness, repeated).await;
    assert_eq!(acquired(&mut second).await.lock_id, lock_id);
    end(&mut first).await.unwrap();
    drop(first);
    // A release would be sent within this time; there is no event if none is.
    sleep(Duration::from_millis(50)).await;
    assert_eq!(harness.memory.records(), 1, "the first stream's end releases nothing");
    drop(second);
    eventually("it is free", || harness.memory.records() == 0).await;
}
