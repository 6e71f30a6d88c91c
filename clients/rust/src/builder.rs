//! The request for a lock.

use std::{fmt, marker::PhantomData, time::Duration};

use crate::{
    Error, Lock, Locks, Mode, RunError, open,
    options::Options,
    reentrant::{self, Owned},
    run,
};

/// A request that waits; from [`Locks::lock`].
#[derive(Debug)]
pub enum Waits {}

/// A request that does not wait; from [`Locks::try_lock`].
#[derive(Debug)]
pub enum Tries {}

/// A request for a lock. `K` is [`Waits`] or [`Tries`].
///
/// Its options are checked by `run` and `acquire`: a bad one is an [`Error::Failed`] with the reason
/// `INVALID_REQUEST` and a message that begins with the name of the option.
#[must_use = "nothing is locked before `run` or `acquire`"]
pub struct LockBuilder<K> {
    locks: Locks,
    options: Options,
    kind: PhantomData<fn() -> K>,
}

impl<K> LockBuilder<K> {
    pub(crate) fn new(locks: Locks, resource: String, immediate: bool) -> Self {
        let options = Options { resource, immediate, ..Options::default() };
        Self { locks, options, kind: PhantomData }
    }

    /// How long the lock lasts when nobody renews it, more than zero; by default the store's TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Whether others may hold the lock at the same time; by default not.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// The namespace of the resource, the outermost segment first: up to 16 segments of 1 to 128
    /// bytes. By default there is none.
    pub fn namespace<S: Into<String>>(mut self, segments: impl IntoIterator<Item = S>) -> Self {
        self.options.namespace = segments.into_iter().map(Into::into).collect();
        self
    }

    /// The last part of the holder name, which others can see: up to 128 bytes without control
    /// characters; by default there is none.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.options.label = label.into();
        self
    }

    /// The lock is released after this long, more than zero, whatever the app does; by default
    /// never.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// A secret, up to 256 bytes, with which a repeated request finds its own grant again and
    /// takes it over; by default there is none.
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.options.request_id = request_id.into();
        self
    }

    /// How long before the safe deadline the lock counts as lost, so that the work has time to
    /// stop. By default a tenth of the granted TTL or of [`max_hold`](Self::max_hold), whichever is
    /// shorter, and at most 5 s. One that leaves no time of the TTL is refused when the lock is
    /// granted.
    pub fn stop_before(mut self, stop_before: Duration) -> Self {
        self.options.stop_before = Some(stop_before);
        self
    }

    /// Work that [`run`](LockBuilder::run) started with this option may take the same lock again
    /// with this option. Without it the work would wait for itself.
    ///
    /// The same lock is the same name and namespace of the same [`Locks`] or a clone of it. The
    /// inner handle is of the same grant: its other options have no effect, and the end of the last
    /// handle releases the lock. Another [`mode`](Self::mode) is an error. The owner is the task
    /// that runs the work; a task that the work spawns is another.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.options.reentrant = reentrant;
        self
    }

    async fn take(self) -> Result<(Lock, Option<Owned>), Error> {
        let Self { locks, options, .. } = self;
        options.check()?;
        if options.reentrant
            && let Some(lock) = reentrant::find(&locks, &options)?
        {
            return Ok((lock, None));
        }
        let client = locks.client().current();
        let opened = open::open(&client, &options).await?;
        let reentrant = options.reentrant;
        let lock = Lock::start(client, options, opened);
        let owned = reentrant.then(|| Owned { locks, owner: lock.owner().clone() });
        Ok((lock, owned))
    }
}

/// Without the request ID, which is a secret.
impl<K> fmt::Debug for LockBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockBuilder")
            .field("resource", &self.options.resource)
            .field("namespace", &self.options.namespace)
            .finish_non_exhaustive()
    }
}

impl LockBuilder<Waits> {
    /// How long to wait for the lock; with zero it does not wait. By default there is no limit.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Waits for the lock and returns its handle.
    ///
    /// The handle signals a loss ([`Lock::lost`], [`Lock::check`]) but cannot stop the work.
    ///
    /// # Errors
    ///
    /// [`Error::NotAcquired`] if the wait ended first; [`Error::Failed`], with the reason
    /// `UNAVAILABLE` if the sidecar was silent for 30 s, or 10 s after the end of the wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub async fn acquire(self) -> Result<Lock, Error> {
        Ok(self.take().await?.0)
    }

    /// Waits for the lock, holds it while `work` runs, unlocks it, and returns what the work
    /// returned.
    ///
    /// If the lock is lost, the work's future is polled once more and dropped: it runs until its
    /// next `.await` that has to wait, and its destructors run. Then this returns the loss. If the
    /// work has returned by then, its error is returned with the loss attached; its value is
    /// dropped, because what it did may have been done without the lock.
    ///
    /// The work is not dropped while it blocks its thread; see [`Lock::check`]. What it spawned as
    /// tasks of their own goes on; use [`tokio::task::JoinSet`], which aborts them when it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`RunError::Work`] if the work failed; otherwise [`RunError::Lock`] with the errors of
    /// [`acquire`](Self::acquire), or with [`Error::LockLost`]. If the lock is lost and the work
    /// returned a [`LockLost`](crate::LockLost), as itself, as [`Error`] or in a
    /// `Box<dyn Error>` with or without `Send + Sync`, that is not an error of its own. In any other
    /// type it is. `E` is `'static` so that these types can be recognized. [`RunError::lost`] has
    /// the loss in both cases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work first. Then it closes the stream, which releases the lock.
    pub async fn run<T, E: 'static>(
        self,
        work: impl AsyncFnOnce(&Lock) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        let (lock, owned) = self.take().await?;
        run::run(lock, owned, work).await
    }
}

impl LockBuilder<Tries> {
    /// Returns the handle of the lock, or `None` if somebody else holds it.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], with the reason `UNAVAILABLE` if the sidecar did not answer for 10 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request.
    pub async fn acquire(self) -> Result<Option<Lock>, Error> {
        Ok(found(self.take().await)?.map(|(lock, _)| lock))
    }

    /// Holds the lock while `work` runs, as [`LockBuilder::<Waits>::run`] does, or returns `None`
    /// without running it if somebody else holds the lock.
    ///
    /// # Errors
    ///
    /// [`RunError::Work`] if the work failed; otherwise [`RunError::Lock`] with the errors of
    /// [`acquire`](Self::acquire), or with [`Error::LockLost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work first. Then it closes the stream, which releases the lock.
    pub async fn run<T, E: 'static>(
        self,
        work: impl AsyncFnOnce(&Lock) -> Result<T, E>,
    ) -> Result<Option<T>, RunError<E>> {
        let Some((lock, owned)) = found(self.take().await)? else { return Ok(None) };
        run::run(lock, owned, work).await.map(Some)
    }
}

/// `None` if somebody else holds the lock.
fn found<T>(taken: Result<T, Error>) -> Result<Option<T>, Error> {
    match taken {
        Ok(taken) => Ok(Some(taken)),
        Err(Error::NotAcquired(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
