//! A Lock in flight.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::task::JoinHandle;

use crate::{
    answer::Answer,
    expect::{Expect as _, Reason},
    store::{Ask, Grant, Store},
    words::{Accepted as _, Told},
};

/// How long a Lock is given to arrive where the store queues it. Nothing in
/// the protocol tells that it did; a call sent this much later, and answered,
/// is behind it in any store that is not stuck.
const ARRIVAL: Duration = Duration::from_millis(120);

/// How long a grant may take to reach a waiter that is due.
pub(crate) const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// How long a waiter that is not due is watched for a grant it must not get.
pub(crate) const WATCH: Duration = Duration::from_millis(400);

/// A Lock that was sent and not yet looked at.
pub(crate) struct Waiter {
    resource: String,
    task: JoinHandle<Answer<Grant>>,
}

impl Waiter {
    pub(crate) fn new(resource: String, task: JoinHandle<Answer<Grant>>) -> Self {
        Self { resource, task }
    }

    /// Returns once the Lock has surely arrived, and fails if it was answered.
    pub(crate) async fn arrive(&self, store: &Store) -> anyhow::Result<()> {
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

    /// Fails if the Lock is answered while it is watched.
    pub(crate) async fn stays(&mut self, because: &str) -> anyhow::Result<()> {
        match tokio::time::timeout(WATCH, &mut self.task).await {
            Err(_) => Ok(()),
            Ok(answer) => {
                let answer = answer?.map_or_else(|no| no.to_string(), |grant| grant.told());
                bail!("{because}, yet its Lock was answered: {answer}")
            }
        }
    }

    /// The grant, which is due.
    pub(crate) async fn granted(self) -> anyhow::Result<Grant> {
        let answer = self.answer().await?;
        answer.or_fail("the waiter that was due got no grant")
    }

    /// The answer, which is due.
    pub(crate) async fn answer(self) -> anyhow::Result<Answer<Grant>> {
        self.answer_within(HAND_OVER_MAX).await
    }

    pub(crate) async fn answer_within(self, bound: Duration) -> anyhow::Result<Answer<Grant>> {
        let answer = tokio::time::timeout(bound, self.task).await.with_context(|| {
            format!("the Lock that was due had no answer within {}", Told(bound))
        })?;
        Ok(answer?)
    }

    /// Cancels the call, as a caller does that goes away. The answer, if one
    /// was there before.
    pub(crate) async fn cancel(self) -> Option<Answer<Grant>> {
        self.task.abort();
        self.task.await.ok()
    }
}
