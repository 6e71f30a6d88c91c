//! The handle of a lock.

use std::{
    fmt,
    future::pending,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{task::AbortHandle, time::timeout};

use crate::{
    Cause, LockLost,
    client::Client,
    held::{End, Grant, Held, Left, Limits},
    keeper::Keeper,
    open::Opened,
    options::Options,
    status,
};

const STOP_BEFORE_MAX: Duration = Duration::from_secs(5);
const UNLOCK_MAX: Duration = Duration::from_secs(5);

/// A lock that was acquired.
///
/// It is bound to no task or thread. Dropping it closes its stream, which releases the lock. Of
/// several handles of a re-entrant lock, the last one to be unlocked or dropped does that.
pub struct Lock {
    owner: Owner,
    /// How this handle was unlocked, if it was.
    left: OnceLock<Left>,
}

/// What the handles of a lock share.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) held: Arc<Held>,
    client: Client,
    /// Aborting it closes the stream.
    keeper: AbortHandle,
}

impl Lock {
    pub(crate) fn start(client: Client, options: Options, opened: Opened) -> Self {
        let Opened { acquired, stream, ttl, granted, safe_deadline, max_hold } = opened;
        let shorter = options.max_hold.map_or(ttl, |max_hold| max_hold.min(ttl));
        let stop_before = options.stop_before.unwrap_or((shorter / 10).min(STOP_BEFORE_MAX));
        let grant = Grant {
            resource: options.resource,
            namespace: options.namespace,
            mode: options.mode,
            lock_id: acquired.lock_id,
            grant_id: acquired.grant_id,
            token: acquired.fencing_token,
        };
        let (limits, silent) = (Limits { stop_before, max_hold }, client.clone());
        let held = Held::new(grant, limits, safe_deadline, move || silent.fall_silent());
        let held = Arc::new(held);
        let shared = held.clone();
        let keeper = Keeper { held: shared, client: client.clone(), stream, ttl, granted };
        let keeper = tokio::spawn(keeper.keep()).abort_handle();
        Self { owner: Owner { held, client, keeper }, left: OnceLock::new() }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    fn grant(&self) -> &Grant {
        &self.owner.held.grant
    }

    /// How the lock ended for this handle, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        match self.left.get() {
            Some(Left::ToOthers) => Some(Ok(())),
            _ => self.owner.held.end(),
        }
    }

    /// Waits until it is lost; never ends if this handle was unlocked.
    pub(crate) async fn over_by_loss(&self) -> LockLost {
        match self.owner.held.wait(|| self.end()).await {
            Err(lost) => lost,
            Ok(()) => pending().await,
        }
    }

    /// The fencing token: positive, and greater than those of all earlier grants of the resource.
    pub fn token(&self) -> i64 {
        self.grant().token
    }

    /// The name of the resource, as it was given.
    pub fn resource(&self) -> &str {
        &self.grant().resource
    }

    /// The proof of ownership, for raw calls. A secret.
    pub fn lock_id(&self) -> &str {
        &self.grant().lock_id
    }

    /// The public name of the grant, or `None` if the store cannot be inspected.
    pub fn grant_id(&self) -> Option<&str> {
        Some(&*self.grant().grant_id).filter(|id| !id.is_empty())
    }

    /// How long until the work is cancelled unless the sidecar confirms the lock; zero once it
    /// is lost or unlocked.
    pub fn valid_for(&self) -> Duration {
        if self.end().is_some() { Duration::ZERO } else { self.owner.held.left() }
    }

    /// Fails if the lock is lost or unlocked. Reads the clock and makes no call.
    ///
    /// For work that blocks its thread, which nothing can cancel: call it before each step.
    ///
    /// # Errors
    ///
    /// [`LockLost`]; after [`unlock`](Self::unlock) with the cause [`Cause::Ended`].
    pub fn check(&self) -> Result<(), LockLost> {
        self.end().map_or(Ok(()), |end| Err(self.loss(end)))
    }

    /// Waits until the lock is lost or unlocked; for the latter the cause is [`Cause::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LockLost {
        self.loss(self.owner.held.wait(|| self.end()).await)
    }

    fn loss(&self, end: End) -> LockLost {
        end.err().unwrap_or_else(|| self.owner.held.loss(Cause::Ended))
    }

    /// Unlocks, for at most 5 s, and closes the stream.
    ///
    /// Closing the stream releases the lock too, so an Unlock that the sidecar did not answer is
    /// not an error. Further calls do nothing and return the same. While a re-entrant lock has other
    /// handles, this ends the handle alone and makes no call.
    ///
    /// # Errors
    ///
    /// [`LockLost`] if it was lost before it was unlocked.
    ///
    /// # Cancel safety
    ///
    /// Once the future was polled, dropping it cancels nothing: the unlock goes on in a task of its
    /// own.
    pub async fn unlock(&self) -> Result<(), LockLost> {
        match self.owner.held.leave(&self.left) {
            Some(Left::Held) => {
                let (owner, ending) = (self.owner.clone(), Ending(self.owner.held.clone()));
                tokio::spawn(async move { owner.unlock(&ending.0).await });
            }
            Some(Left::Lost) => self.owner.keeper.abort(),
            Some(Left::ToOthers | Left::LostToOthers) | None => {}
        }
        match self.left.get() {
            Some(Left::ToOthers) => Ok(()),
            _ => self.owner.held.unlocked().await,
        }
    }
}

impl Owner {
    /// One more handle, unless the lock has ended.
    pub(crate) fn join(&self) -> Option<Lock> {
        let joined = || Lock { owner: self.clone(), left: OnceLock::new() };
        self.held.join().then(joined)
    }

    async fn unlock(self, held: &Held) {
        let answer = timeout(UNLOCK_MAX, self.client.unlock(held)).await;
        self.keeper.abort();
        let lost = match answer {
            Ok(Err(status)) => status::lost_before_unlock(&held.grant.resource, &status),
            Ok(Ok(())) | Err(_) => None,
        };
        held.end_unlock(lost);
    }
}

/// When a runtime ends it drops the task that unlocks.
struct Ending(Arc<Held>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end_unlock(None);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        match self.owner.held.leave(&self.left) {
            Some(Left::Held) => {
                self.owner.held.end_unlock(None);
                self.owner.keeper.abort();
            }
            Some(Left::Lost) => self.owner.keeper.abort(),
            Some(Left::ToOthers | Left::LostToOthers) | None => {}
        }
    }
}

/// Without the lock ID, which is a secret.
impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("resource", &self.resource())
            .field("token", &self.token())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}
