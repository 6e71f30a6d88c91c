//! A lock that is held for as long as its stream lives, independent of the transport.
//!
//! A task waits for the lock and then for its end, and hands events to the transport
//! through a queue of length one. So the grant is held even if the client does not read,
//! and a client that does not read for long is cut off.

use std::{future::ready, task::Poll, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use leasehold_held::{Engine, HoldEnd, MaxHold};
use leasehold_lock::{Granted, LockError};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{LockCall, Locks, UndeliveredGrant};
use crate::api::error::ApiError;

/// How often a stream sends a ping.
const PING_PERIOD: Duration = Duration::from_secs(10);
/// How long a client may take to read an event.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// One message of a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// The stream is alive.
    Ping,
    /// The lock is held from now on.
    Acquired(Granted),
}

type Acquiring = BoxFuture<'static, Result<UndeliveredGrant, ApiError>>;

/// The events of a lock, followed by the error with which it ended, if it was not
/// unlocked. Dropping the stream releases the lock.
pub(super) type Events = BoxStream<'static, Result<Event, ApiError>>;

/// Begins to acquire. An immediate error is returned instead of a stream, so a try is
/// awaited.
pub(super) async fn open(
    locks: &Locks,
    call: LockCall,
    max_hold: MaxHold,
) -> Result<Events, ApiError> {
    let immediate = call.immediate;
    let call = LockCall { streamed: true, ..call };
    let mut acquiring = {
        let locks = locks.clone();
        async move { locks.acquire_within(call, max_hold, None).await }.boxed()
    };
    if immediate {
        let grant = acquiring.await?;
        acquiring = ready(Ok(grant)).boxed();
    } else if let Poll::Ready(known) = futures_util::poll!(&mut acquiring) {
        acquiring = ready(Ok(known?)).boxed();
    }
    let (sender, queue) = mpsc::channel(1);
    let engine = locks.engine().clone();
    let session = tokio::spawn(async move { session(&engine, acquiring, &sender).await });
    Ok(events(queue, session))
}

fn events(
    mut queue: mpsc::Receiver<Event>,
    session: JoinHandle<Result<(), ApiError>>,
) -> Events {
    let events = stream::poll_fn(move |context| queue.poll_recv(context)).map(Ok);
    // A missing end is a bug, never a success (trap 17).
    let end = session.map(|ended| ended.unwrap_or(Err(LockError::Internal.into())).err());
    let end = end.into_stream().filter_map(|end| ready(end.map(Err)));
    events.chain(end).boxed()
}

/// Holds the lock until it or the stream ends. Dropping the guard releases it.
async fn session(
    engine: &Engine,
    mut acquiring: Acquiring,
    events: &mpsc::Sender<Event>,
) -> Result<(), ApiError> {
    let mut pings = interval(PING_PERIOD);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let grant = loop {
        tokio::select! {
            grant = &mut acquiring => break grant?,
            () = events.closed() => return Ok(()),
            _ = pings.tick() => ping(events),
        }
    };
    let acquired = Event::Acquired(grant.granted.clone());
    let (_guard, mut end_of_lock) = if grant.is_alone() {
        let held = grant.hold_for_stream()?;
        deliver(events, acquired).await?;
        held
    } else {
        // The lock is left to the other callers until the client has read the answer.
        if !deliver(events, acquired).await? {
            return Ok(());
        }
        grant.hold_for_stream()?
    };
    loop {
        tokio::select! {
            ended = &mut end_of_lock => return match ended {
                Ok(HoldEnd::Lost(cause)) => Err(ApiError::Lost(cause)),
                Ok(HoldEnd::Unlocked | HoldEnd::Superseded | HoldEnd::Detached) => Ok(()),
                Err(_) => Err(LockError::Internal.into()),
            },
            () = events.closed() => return Ok(()),
            () = engine.draining() => return Err(LockError::ShuttingDown.into()),
            _ = pings.tick() => ping(events),
        }
    }
}

/// Sends a ping, unless the client has not yet read the event before it.
fn ping(events: &mpsc::Sender<Event>) {
    let _ = events.try_send(Event::Ping);
}

/// Sends an event and waits until the client has room for more. Returns false if the client
/// has gone.
///
/// Over HTTP/2 one event may be taken from the queue before the client has room for it. So a
/// ping follows, which is taken only when the event has been sent.
async fn deliver(events: &mpsc::Sender<Event>, event: Event) -> Result<bool, ApiError> {
    let delivered = async {
        events.send(event).await.ok()?;
        events.send(Event::Ping).await.ok()?;
        events.reserve().await.ok()
    };
    match timeout(READ_TIMEOUT, delivered).await {
        Ok(read) => Ok(read.is_some()),
        Err(_) => Err(ApiError::NotReading),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end without a recorded reason is no success.
    /// Trap: sidecar 17
    #[tokio::test]
    async fn an_end_without_a_reason_is_an_error() {
        let (sender, queue) = mpsc::channel(1);
        let session = tokio::spawn(async move {
            sender.send(Event::Ping).await.unwrap();
            std::future::pending().await
        });
        let abort = session.abort_handle();
        let mut events = events(queue, session);
        assert!(matches!(events.next().await, Some(Ok(Event::Ping))));
        abort.abort();
        assert_eq!(events.next().await.unwrap().unwrap_err(), LockError::Internal.into());
        assert!(events.next().await.is_none());
    }

    /// An HTTP/2 connection takes one event from the queue before the client has room for it.
    /// That counted as read, so a repeated stream that nobody read took the lock over.
    #[tokio::test(start_paused = true)]
    async fn an_event_that_waits_in_the_connection_was_not_read() {
        let (sender, mut queue) = mpsc::channel(1);
        let delivered = tokio::spawn(async move { deliver(&sender, Event::Ping).await });
        assert!(queue.recv().await.is_some());
        assert!(matches!(delivered.await.unwrap(), Err(ApiError::NotReading)));
    }

    #[tokio::test]
    async fn an_end_that_is_well_is_silent() {
        let (sender, queue) = mpsc::channel(1);
        drop(sender);
        let mut events = events(queue, tokio::spawn(async { Ok(()) }));
        assert!(events.next().await.is_none());
    }
}
