//! Locks that wait.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use leasehold_proto::components::LockMode;
use tokio::{task::JoinHandle, time::Instant};

use crate::{
    answer::Answer,
    expect::Expect as _,
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    words::{Accepted as _, Readable},
};

/// How long a Lock may take to arrive in the store's queue. The protocol has no signal
/// for that. A call that is sent this much later and is answered came after it, unless
/// the store is stuck.
const ARRIVAL: Duration = Duration::from_millis(120);

/// How long a grant may take to reach the waiter whose turn it is.
pub(crate) const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// How long to watch for a grant to a waiter whose turn it is not.
pub(crate) const WATCH: Duration = Duration::from_millis(400);

/// A Lock that was sent and whose answer has not been read.
pub(crate) struct Waiter {
    resource: String,
    task: JoinHandle<Answer<Grant>>,
}

impl Store {
    /// Starts a Lock and returns once it is in the queue: later calls come after it.
    pub(crate) async fn queue(&self, ask: &Ask) -> anyhow::Result<Waiter> {
        let waiter = self.start(ask);
        waiter.arrive(self).await?;
        Ok(waiter)
    }

    /// Like [`Store::queue`], for a writer. While readers hold the resource, every try of a
    /// writer is refused, so only the try of another reader shows whether a writer has
    /// arrived.
    pub(crate) async fn queue_writer(&self, ask: &Ask) -> anyhow::Result<Waiter> {
        let waiter = self.queue(ask).await?;
        let reader = Ask::of(&waiter.resource).mode(LockMode::Shared);
        let deadline = Instant::now() + HAND_OVER_MAX;
        loop {
            let grant = match self.try_lock(&reader).await {
                Ok(grant) => grant,
                refused => {
                    refused.refused(Reason::ResourceLocked)?;
                    return Ok(waiter);
                }
            };
            self.release(&grant).await.or_fail("Unlock of a reader")?;
            ensure!(Instant::now() < deadline, "readers are granted while a writer waits");
        }
    }

    /// Starts a Lock.
    pub(crate) fn start(&self, ask: &Ask) -> Waiter {
        let (store, ask) = (self.clone(), ask.clone());
        let resource = ask.request.resource_id.clone();
        let task = tokio::spawn(async move { store.lock(&ask).await });
        self.scope().leftovers.note_wait(task.abort_handle());
        Waiter { resource, task }
    }
}

impl Waiter {
    /// Returns once the Lock must have arrived; fails if it was answered.
    async fn arrive(&self, store: &Store) -> anyhow::Result<()> {
        tokio::time::sleep(ARRIVAL).await;
        store
            .try_lock(&Ask::of(&self.resource))
            .await
            .refused(Reason::ResourceLocked)
            .context("a TryLock while the resource is held and waited for")?;
        ensure!(!self.is_answered(), "the Lock was answered though it should wait");
        Ok(())
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.task.is_finished()
    }

    /// Watches the Lock for a while, and fails if it is answered.
    pub(crate) async fn stays(&mut self, because: &str) -> anyhow::Result<()> {
        match tokio::time::timeout(WATCH, &mut self.task).await {
            Err(_) => Ok(()),
            Ok(answer) => {
                let answer = answer?.map_or_else(|no| no.to_string(), |grant| grant.describe());
                bail!("{because}, yet its Lock was answered: {answer}")
            }
        }
    }

    /// The grant, which must come soon.
    pub(crate) async fn granted(self) -> anyhow::Result<Grant> {
        let answer = self.answer().await?;
        answer.or_fail("the waiter whose turn it was got no grant")
    }

    /// The answer, which must come soon.
    pub(crate) async fn answer(self) -> anyhow::Result<Answer<Grant>> {
        self.answer_within(HAND_OVER_MAX).await
    }

    pub(crate) async fn answer_within(self, bound: Duration) -> anyhow::Result<Answer<Grant>> {
        let answer = tokio::time::timeout(bound, self.task).await.with_context(|| {
            format!("the Lock whose turn it was had no answer within {}", Readable(bound))
        })?;
        Ok(answer?)
    }

    /// Cancels the call, as a caller that goes away does. Returns the answer if it had
    /// already arrived.
    pub(crate) async fn cancel(self) -> Option<Answer<Grant>> {
        self.task.abort();
        self.task.await.ok()
    }
}
