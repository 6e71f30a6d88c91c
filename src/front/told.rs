//! What replies tell of, until it is known whether their clients have read them.

use std::sync::Arc;

use super::{
    lost_replies::{Effect, LostReplies},
    verb::Pair,
};
use crate::lock::{Receipt, RequestId};

/// What a reply tells of.
///
/// If this is dropped before the reply was sent, a new lock is released, because nobody can know
/// of it. Everything else is then found by a retry.
#[derive(Debug)]
pub(super) struct Told {
    lost: Arc<LostReplies>,
    what: Option<What>,
}

#[derive(Debug)]
enum What {
    /// The client took a lock. Unless the receipt is accepted, it releases a new lock.
    Acquired { pair: Pair, request_id: Option<RequestId>, receipt: Receipt },
    /// The client ended its lock.
    Released { pair: Pair, number: u64 },
}

impl Told {
    /// The client took a lock. Without a request ID no retry can find it.
    pub(super) fn acquired(
        lost: Arc<LostReplies>,
        pair: Pair,
        request_id: Option<RequestId>,
        receipt: Receipt,
    ) -> Self {
        Self { lost, what: Some(What::Acquired { pair, request_id, receipt }) }
    }

    /// The client ended its lock.
    pub(super) fn released(lost: Arc<LostReplies>, pair: Pair) -> Self {
        let number = lost.begin_reply_to_unlock(pair.clone());
        Self { lost, what: Some(What::Released { pair, number }) }
    }

    /// The transport has taken the whole reply, so a new lock is left to its TTL.
    pub(super) fn was_sent(&self) {
        if let Some(What::Acquired { receipt, .. }) = &self.what {
            receipt.accept();
        }
    }

    /// Whether it tells of a lock that was taken.
    pub(super) fn is_of_a_grant(&self) -> bool {
        matches!(self.what, Some(What::Acquired { .. }))
    }

    /// The client has read the reply.
    pub(super) fn was_read(mut self) {
        if let Some(What::Released { pair, number }) = self.what.take() {
            self.lost.end_reply_to_unlock(pair, number, false);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        match self.what.take() {
            Some(What::Acquired { pair, request_id: Some(request_id), receipt })
                if !receipt.undoes() =>
            {
                self.lost.add(pair, Effect::Acquired(request_id));
            }
            Some(What::Released { pair, number }) => {
                self.lost.end_reply_to_unlock(pair, number, true);
            }
            Some(What::Acquired { .. }) | None => {}
        }
    }
}

/// A lock that a value took without learning of it, while the request is repeated. If this is
/// dropped, the next retry finds the lock.
#[derive(Debug)]
pub(super) struct Retried {
    lost: Arc<LostReplies>,
    found: Option<(Pair, RequestId)>,
}

impl Retried {
    /// Finds the lock, if there is one.
    pub(super) fn find(lost: &Arc<LostReplies>, pair: &Pair) -> Self {
        let found = lost.take_acquired(pair).map(|request_id| (pair.clone(), request_id));
        Self { lost: Arc::clone(lost), found }
    }

    /// The request ID with which the caller repeats the request, so that the store decides
    /// whether the lock still lives.
    pub(super) fn request_id(&self) -> Option<RequestId> {
        self.found.as_ref().map(|(_, request_id)| request_id.clone())
    }

    /// The outcome is known.
    pub(super) fn forget(mut self) {
        self.found = None;
    }
}

impl Drop for Retried {
    fn drop(&mut self) {
        if let Some((pair, request_id)) = self.found.take() {
            self.lost.add(pair, Effect::Acquired(request_id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        Pair { key: "k".parse().unwrap(), value: "v".parse().unwrap() }
    }

    fn unlocked(lost: &Arc<LostReplies>) -> Told {
        Told::released(Arc::clone(lost), pair())
    }

    #[tokio::test(start_paused = true)]
    async fn an_unlock_is_found_unless_its_reply_was_read() {
        let lost = Arc::default();
        unlocked(&lost).was_read();
        assert!(!lost.take_released(&pair()));
        drop(unlocked(&lost));
        assert!(lost.take_released(&pair()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unlock_is_not_found_while_its_reply_may_still_be_read() {
        let lost = Arc::default();
        let _told = unlocked(&lost);
        assert!(!lost.take_released(&pair()));
    }

    /// The end of an earlier lock was once told of a later one.
    #[tokio::test(start_paused = true)]
    async fn an_unlock_is_not_found_after_another_try_to_lock() {
        let lost = Arc::default();
        let told = unlocked(&lost);
        lost.forget_released(&pair());
        drop(told);
        assert!(!lost.take_released(&pair()));
    }

    /// The retry of a retry once found nothing.
    #[tokio::test(start_paused = true)]
    async fn a_retry_that_is_cut_off_leaves_the_lock_to_the_next() {
        let lost: Arc<LostReplies> = Arc::default();
        let request_id = RequestId::publishing();
        lost.add(pair(), Effect::Acquired(request_id.clone()));
        drop(Retried::find(&lost, &pair()));
        assert_eq!(Retried::find(&lost, &pair()).request_id(), Some(request_id));
    }
}
