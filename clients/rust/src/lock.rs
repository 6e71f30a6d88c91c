//! The handle of a lock.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};

use crate::{
    Cause, LockLost,
    client::Client,
    held::{Grant, Held},
    keeper::Keeper,
    open::Opened,
    options::Options,
    status,
};

const STOP_BEFORE_MAX: Duration = Duration::from_secs(5);
const UNLOCK_MAX: Duration = Duration::from_secs(5);

/// A lock that was acquired.
///
/// It is bound to no task or thread. Dropping it closes its stream, which releases the lock.
pub struct Lock {
    held: Arc<Held>,
    /// `None` for the inner handle of a re-entrant lock, whose end releases nothing.
    owner: Option<Owner>,
}

#[derive(Clone)]
struct Owner {
    client: Client,
    /// Aborting it closes the stream.
    keeper: AbortHandle,
}

impl Lock {
    pub(crate) fn start(client: &Client, options: Options, opened: Opened) -> Self {
        let Opened { acquired, stream, ttl, safe_deadline, max_hold_end } = opened;
        let stop_before = options.stop_before.unwrap_or((ttl / 10).min(STOP_BEFORE_MAX));
        let now = Instant::now();
        let earlier = |time: Instant| time.checked_sub(stop_before).unwrap_or(now);
        let grant = Grant {
            resource: options.resource,
            namespace: options.namespace,
            mode: options.mode,
            lock_id: acquired.lock_id,
            grant_id: acquired.grant_id,
            token: acquired.fencing_token,
            max_hold_end: max_hold_end.map(earlier),
        };
        let held = Arc::new(Held::new(grant, earlier(safe_deadline)));
        let (client, shared) = (client.clone(), held.clone());
        let keeper = Keeper { held: shared, client: client.clone(), stream, ttl, stop_before };
        let keeper = tokio::spawn(keeper.keep()).abort_handle();
        Self { held, owner: Some(Owner { client, keeper }) }
    }

    /// The inner handle of a lock that this task holds already.
    pub(crate) fn inner(held: Arc<Held>) -> Self {
        Self { held, owner: None }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The fencing token: positive, and greater than those of all earlier grants of the resource.
    pub fn token(&self) -> i64 {
        self.held.token
    }

    /// The name of the resource, as it was given.
    pub fn resource(&self) -> &str {
        &self.held.resource
    }

    /// The proof of ownership, for raw calls. A secret.
    pub fn lock_id(&self) -> &str {
        &self.held.lock_id
    }

    /// The public name of the grant, or `None` if the store cannot be inspected.
    pub fn grant_id(&self) -> Option<&str> {
        Some(&*self.held.grant_id).filter(|id| !id.is_empty())
    }

    /// How long until the work is cancelled unless the sidecar confirms the lock; zero once it
    /// is lost or unlocked.
    pub fn valid_for(&self) -> Duration {
        self.held.valid_for().unwrap_or_default()
    }

    /// Fails if the lock is lost or unlocked. Reads the clock and makes no call.
    ///
    /// For work that blocks its thread, which nothing can cancel: call it before each step.
    ///
    /// # Errors
    ///
    /// [`LockLost`]; after [`unlock`](Self::unlock) with the cause [`Cause::Ended`].
    pub fn check(&self) -> Result<(), LockLost> {
        self.held.valid_for().map(drop)
    }

    /// Waits until the lock is lost or unlocked; for the latter the cause is [`Cause::Ended`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LockLost {
        self.held.over().await.err().unwrap_or_else(|| self.held.loss(Cause::Ended))
    }

    /// Unlocks, for at most 5 s, and closes the stream.
    ///
    /// Closing the stream releases the lock too, so an Unlock that the sidecar did not answer is
    /// no error. Further calls do nothing and return the same. The inner handle of a re-entrant
    /// lock unlocks nothing.
    ///
    /// # Errors
    ///
    /// [`LockLost`] if it was lost before it was unlocked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels nothing: the unlock goes on in a task of its own.
    pub async fn unlock(&self) -> Result<(), LockLost> {
        let Some(owner) = &self.owner else {
            return self.held.lost().map_or(Ok(()), Err);
        };
        if self.held.begin_unlock() {
            let (owner, ending) = (owner.clone(), Ending(self.held.clone()));
            tokio::spawn(async move { owner.unlock(&ending.0).await });
        } else if self.held.lost().is_some() {
            owner.keeper.abort();
        }
        self.held.unlocked().await
    }
}

impl Owner {
    async fn unlock(self, held: &Held) {
        let answer = timeout(UNLOCK_MAX, self.client.unlock(held)).await;
        self.keeper.abort();
        let lost = match answer {
            Ok(Err(status)) => status::lost_before_unlock(&held.resource, &status),
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
        if let Some(owner) = &self.owner
            && self.held.abandon()
        {
            owner.keeper.abort();
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
