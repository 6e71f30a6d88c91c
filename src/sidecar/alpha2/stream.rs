//! The stream whose life is the lock's life, without its transport.
//!
//! A task of its own waits for the lock and then for the end, and hands events
//! to the transport through a queue of one: what it acquires is noticed even if
//! the client does not read, and a client that does not read for long is cut
//! off.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, Stream, future::BoxFuture};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{Acquired, LockCall, Locks};
use crate::{
    held::{Ended, Engine},
    lock::{FencingToken, LockError, LockId},
    sidecar::error::ApiError,
};

/// How often a stream shows that it is alive.
const PING_PERIOD: Duration = Duration::from_secs(10);
/// How long a client may take to read what it is told.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a stream tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// It is alive.
    Ping,
    /// The lock is held from now on.
    Acquired(Grant),
}

/// A grant as a stream tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) lock_id: LockId,
    pub(super) token: Option<FencingToken>,
    pub(super) ttl: Duration,
    pub(super) waited: Duration,
}

type Acquiring = BoxFuture<'static, Result<Acquired, ApiError>>;

/// How a stream ended: `None` is well.
type End = Arc<OnceLock<Option<ApiError>>>;

/// The events of a lock, and then how it ended: an error, or nothing if it was
/// unlocked. Dropping it releases the lock.
pub(super) struct Events {
    queue: mpsc::Receiver<Event>,
    end: End,
    done: bool,
}

/// Begins to acquire. An error that is known at once is returned instead of a
/// stream; a try is awaited for that.
pub(super) async fn open(locks: &Locks, call: LockCall) -> Result<Events, ApiError> {
    let immediate = call.immediate;
    let mut acquiring = {
        let locks = locks.clone();
        async move { locks.acquire(call).await }.boxed()
    };
    if immediate {
        let acquired = acquiring.await?;
        acquiring = std::future::ready(Ok(acquired)).boxed();
    } else if let Poll::Ready(known) = futures_util::poll!(&mut acquiring) {
        acquiring = std::future::ready(Ok(known?)).boxed();
    }
    let (tell, queue) = mpsc::channel(1);
    let end = End::default();
    tokio::spawn(run(locks.engine().clone(), acquiring, tell, Arc::clone(&end)));
    Ok(Events { queue, end, done: false })
}

async fn run(engine: Engine, acquiring: Acquiring, tell: mpsc::Sender<Event>, end: End) {
    let ended = session(&engine, acquiring, &tell).await;
    // Set before the queue closes, so that who finds it closed finds this.
    let _ = end.set(ended.err());
    drop(tell);
}

/// Holds the lock until it ends; dropping the guard on the way out releases it.
async fn session(
    engine: &Engine,
    mut acquiring: Acquiring,
    tell: &mpsc::Sender<Event>,
) -> Result<(), ApiError> {
    let mut pings = interval(PING_PERIOD);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let acquired = loop {
        tokio::select! {
            acquired = &mut acquiring => break acquired?,
            () = tell.closed() => return Ok(()),
            _ = pings.tick() => ping(tell),
        }
    };
    let grant = Grant {
        lock_id: acquired.granted.lock_id.clone(),
        token: acquired.granted.token,
        ttl: acquired.granted.ttl,
        waited: acquired.granted.waited,
    };
    let (_guard, mut told) = acquired.hold_for_stream();
    deliver(tell, Event::Acquired(grant)).await?;
    loop {
        tokio::select! {
            ended = &mut told => return match ended {
                Ok(Ended::Lost(cause)) => Err(ApiError::Lost(cause)),
                Ok(Ended::Unlocked | Ended::Superseded) => Ok(()),
                Err(_) => Err(LockError::Internal.into()),
            },
            () = tell.closed() => return Ok(()),
            () = engine.draining() => return Err(LockError::ShuttingDown.into()),
            _ = pings.tick() => ping(tell),
        }
    }
}

/// Left out if the client has not yet read what it was told before.
fn ping(tell: &mpsc::Sender<Event>) {
    let _ = tell.try_send(Event::Ping);
}

/// Tells an event and waits until it is read.
async fn deliver(tell: &mpsc::Sender<Event>, event: Event) -> Result<(), ApiError> {
    let delivered = async {
        tell.send(event).await.ok()?;
        tell.reserve().await.ok()
    };
    match timeout(READ_TIMEOUT, delivered).await {
        Ok(_) => Ok(()),
        Err(_) => Err(ApiError::NotReading),
    }
}

impl Stream for Events {
    type Item = Result<Event, ApiError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let Poll::Ready(event) = self.queue.poll_recv(cx) else { return Poll::Pending };
        if let Some(event) = event {
            return Poll::Ready(Some(Ok(event)));
        }
        self.done = true;
        // An end that was never told is a bug, never a success (trap 17).
        let end = self.end.get().cloned().unwrap_or(Some(LockError::Internal.into()));
        Poll::Ready(end.map(Err))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    /// Trap 17: an end that nobody explained is no success.
    #[tokio::test]
    async fn an_end_that_was_not_told_is_an_error() {
        let (tell, queue) = mpsc::channel(1);
        let mut events = Events { queue, end: End::default(), done: false };
        tell.send(Event::Ping).await.unwrap();
        drop(tell);
        assert_eq!(events.next().await, Some(Ok(Event::Ping)));
        assert_eq!(events.next().await, Some(Err(LockError::Internal.into())));
        assert_eq!(events.next().await, None);
    }

    #[tokio::test]
    async fn an_end_that_is_well_is_silent() {
        let (tell, queue) = mpsc::channel(1);
        let end = End::default();
        let mut events = Events { queue, end: Arc::clone(&end), done: false };
        end.set(None).unwrap();
        drop(tell);
        assert_eq!(events.next().await, None);
    }
}
