//! Work under a lock.

use std::{any::Any, error, future::poll_fn, pin::pin, task::Poll};

use crate::{
    Error, Lock, LockLost, RunError,
    reentrant::{self, Owned},
};

/// Runs `work` until it returns or the lock is lost, and unlocks.
pub(crate) async fn run<T, E: 'static>(
    lock: Lock,
    owned: Option<Owned>,
    work: impl AsyncFnOnce(&Lock) -> Result<T, E>,
) -> Result<T, RunError<E>> {
    let result = {
        let mut work = pin!(reentrant::scope(owned, work(&lock)));
        let mut loss = pin!(lock.over_by_loss());
        poll_fn(|context| {
            // Before the work, so that the work is polled once more after the loss. What it returns
            // then counts, for example after waiting for `Lock::lost`.
            let loss = loss.as_mut().poll(context);
            match work.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Ok(result)),
                Poll::Pending => loss.map(Err),
            }
        })
        .await
        // Here the work is dropped, before the stream is closed.
    };
    let unlocked = lock.unlock().await;
    match result {
        Err(lost) => Err(RunError::Lock(Error::LockLost(lost))),
        Ok(Ok(value)) => unlocked.map(|()| value).map_err(|lost| Error::from(lost).into()),
        Ok(Err(error)) => Err(match unlocked.err() {
            Some(lost) if is_loss(&error, &lost) => RunError::Lock(Error::LockLost(lost)),
            lost => RunError::Work { error, lost },
        }),
    }
}

/// Whether `error`, which the work returned, is the loss of the lock; that of another lock is not.
fn is_loss<E: 'static>(error: &E, lost: &LockLost) -> bool {
    let error: &dyn Any = error;
    let error: &(dyn error::Error + 'static) = if let Some(lost) =
        error.downcast_ref::<LockLost>()
    {
        lost
    } else if let Some(error) = error.downcast_ref::<Error>() {
        error
    } else if let Some(error) = error.downcast_ref::<Box<dyn error::Error + Send + Sync>>() {
        &**error
    } else if let Some(error) = error.downcast_ref::<Box<dyn error::Error>>() {
        &**error
    } else {
        return false;
    };
    match error.downcast_ref() {
        Some(Error::LockLost(other)) => other == lost,
        Some(_) => false,
        None => error.downcast_ref() == Some(lost),
    }
}
