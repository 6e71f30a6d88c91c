//! What the client costs over raw gRPC, and how soon a forced unlock cancels the work.
//!
//! `./bench` runs it beside a sidecar.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and panics")]

use std::{convert::Infallible, future::pending, time::Duration};

use leasehold_client::{Lock, Locks, raw};
use raw::locks_client::LocksClient;
use tokio::{sync::oneshot, time::Instant};
use tonic::transport::Channel;

const STORE: &str = "lockstore";
const ROUNDS: usize = 20;
/// Locks and unlocks of one side in a round.
const PAIRS: u32 = 250;
const FORCED: usize = 50;

async fn by_client(locks: &Locks) {
    locks.lock("bench").acquire().await.unwrap().unlock().await.unwrap();
}

async fn by_hand(calls: &mut LocksClient<Channel>) {
    let request = raw::LockRequest {
        resource_id: "bench".to_owned(),
        store_name: STORE.to_owned(),
        ..Default::default()
    };
    let mut stream = calls.lock_stream(request).await.unwrap().into_inner();
    let message = stream.message().await.unwrap().unwrap().lock_server_stream.unwrap();
    let raw::lock_server_stream::LockServerStream::LockAcquired(acquired) = message else {
        panic!("a ping before the lock")
    };
    let request = raw::UnlockRequest {
        resource_id: "bench".to_owned(),
        lock_id: acquired.lock_id,
        store_name: STORE.to_owned(),
        ..Default::default()
    };
    calls.unlock(request).await.unwrap();
}

async fn timed(mut pair: impl AsyncFnMut()) -> Duration {
    let begin = Instant::now();
    for _ in 0..PAIRS {
        pair().await;
    }
    begin.elapsed() / PAIRS
}

/// Drops when the work is cancelled, and sends the time.
struct Cancelled(Option<oneshot::Sender<Instant>>);

impl Drop for Cancelled {
    fn drop(&mut self) {
        let _ = self.0.take().map(|sender| sender.send(Instant::now()));
    }
}

/// From the sending of ForceUnlock to the drop of the work.
async fn forced(locks: &Locks) -> Duration {
    let (started, start) = oneshot::channel();
    let (cancelled, end) = oneshot::channel();
    let cancelled = Cancelled(Some(cancelled));
    let work = async move |_: &Lock| {
        let _cancelled = cancelled;
        let _ = started.send(());
        pending::<Result<(), Infallible>>().await
    };
    let task = tokio::spawn(locks.lock("bench-forced").run(work));
    start.await.unwrap();
    let request = raw::ForceUnlockRequest {
        resource_id: "bench-forced".to_owned(),
        store_name: STORE.to_owned(),
        ..Default::default()
    };
    let begin = Instant::now();
    LocksClient::new(locks.channel()).force_unlock(request).await.unwrap();
    let end = end.await.unwrap();
    assert!(task.await.unwrap().unwrap_err().lost().is_some());
    end.duration_since(begin)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::main]
async fn main() {
    let locks = Locks::new(STORE).unwrap();
    let mut calls = LocksClient::new(locks.channel());
    by_client(&locks).await;
    let (mut client, mut hand, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        client.push(timed(async || by_client(&locks).await).await);
        hand.push(timed(async || by_hand(&mut calls).await).await);
    }
    for _ in 0..FORCED {
        cancelled.push(forced(&locks).await);
    }
    let (client, hand) = (median(client), median(hand));
    println!("lock and unlock by this crate: {client:?}");
    println!("by raw gRPC:                   {hand:?}");
    println!("ratio:                         {:.2}", client.as_secs_f64() / hand.as_secs_f64());
    println!("forced unlock to cancellation: {:?} (median of {FORCED})", median(cancelled));
}
