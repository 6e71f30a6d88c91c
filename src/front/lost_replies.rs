//! Replies that their clients may not have read, so that a retry finds its own outcome.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::verb::Pair;
use crate::lock::{Receipt, RequestId};

/// For how long a retry finds the outcome. Clients retry within a few seconds.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// How many are kept; beyond it the oldest are forgotten, and then a retry is answered as Redis
/// answers it.
const KEPT_MAX: usize = 10_000;

/// What a client may not know that it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It took a lock with this request ID.
    Acquired(RequestId),
    /// It ended its lock.
    Released,
}

/// What a reply tells of, until it is known what became of the reply.
///
/// If this is dropped before the reply was sent, a new lock is released, because nobody can know
/// of it. Everything else is noted for a retry.
#[derive(Debug)]
pub(super) struct Told {
    lost: Arc<LostReplies>,
    effect: Option<(Pair, Effect)>,
    /// Releases a new lock unless it is accepted.
    receipt: Option<Receipt>,
}

impl Told {
    /// The client took a lock.
    pub(super) fn acquired(
        lost: Arc<LostReplies>,
        effect: Option<(Pair, RequestId)>,
        receipt: Receipt,
    ) -> Self {
        let effect = effect.map(|(pair, request_id)| (pair, Effect::Acquired(request_id)));
        Self { lost, effect, receipt: Some(receipt) }
    }

    /// The client ended its lock.
    pub(super) fn released(lost: Arc<LostReplies>, pair: Pair) -> Self {
        Self { lost, effect: Some((pair, Effect::Released)), receipt: None }
    }

    /// The transport has taken the whole reply, so a new lock is left to its TTL.
    pub(super) fn was_sent(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.accept();
        }
    }

    /// Whether it tells of a lock that was taken.
    pub(super) fn is_of_a_grant(&self) -> bool {
        matches!(self.effect, Some((_, Effect::Acquired(_))))
    }

    /// The client has read the reply.
    pub(super) fn was_read(mut self) {
        self.effect = None;
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let is_undone = self.receipt.as_ref().is_some_and(Receipt::undoes);
        if let Some((pair, effect)) = self.effect.take().filter(|_| !is_undone) {
            self.lost.note(pair, effect);
        }
    }
}

/// A lock that a value took without learning of it, while the request is repeated. It is noted
/// again if this is dropped.
#[derive(Debug)]
pub(super) struct Retried {
    lost: Arc<LostReplies>,
    noted: Option<(Pair, RequestId)>,
}

impl Retried {
    /// The request ID with which the caller repeats the request, so that the store decides
    /// whether the lock still lives.
    pub(super) fn request_id(&self) -> Option<RequestId> {
        self.noted.as_ref().map(|(_, request_id)| request_id.clone())
    }

    /// The outcome is known.
    pub(super) fn forget(mut self) {
        self.noted = None;
    }
}

impl Drop for Retried {
    fn drop(&mut self) {
        if let Some((pair, request_id)) = self.noted.take() {
            self.lost.note(pair, Effect::Acquired(request_id));
        }
    }
}

/// The effects whose replies were lost.
#[derive(Debug, Default)]
pub(super) struct LostReplies(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Each with its number in `order`.
    by_pair: HashMap<Pair, (Effect, u64)>,
    /// When each was noted, oldest first. An entry whose number is not that of its pair any more
    /// is a former one.
    order: VecDeque<(Instant, u64, Pair)>,
    numbers: u64,
}

impl LostReplies {
    /// Notes an effect whose reply was lost.
    fn note(&self, pair: Pair, effect: Effect) {
        let mut kept = self.0.lock();
        kept.forget_old();
        kept.numbers += 1;
        let number = kept.numbers;
        kept.order.push_back((Instant::now(), number, pair.clone()));
        kept.by_pair.insert(pair, (effect, number));
    }

    /// Takes the request ID of a lock that the value took without learning of it.
    pub(super) fn retried(self: &Arc<Self>, pair: &Pair) -> Retried {
        let taken = self.take(pair, |effect| matches!(effect, Effect::Acquired(_)));
        let noted = match taken {
            Some(Effect::Acquired(request_id)) => Some((pair.clone(), request_id)),
            _ => None,
        };
        Retried { lost: Arc::clone(self), noted }
    }

    /// Whether the value ended its lock without learning of it.
    pub(super) fn take_released(&self, pair: &Pair) -> bool {
        self.take(pair, |effect| *effect == Effect::Released).is_some()
    }

    fn take(&self, pair: &Pair, is_wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let mut kept = self.0.lock();
        kept.forget_old();
        if !is_wanted(&kept.by_pair.get(pair)?.0) {
            return None;
        }
        kept.by_pair.remove(pair).map(|(effect, _)| effect)
    }
}

impl Kept {
    fn forget_old(&mut self) {
        while let Some((noted, _, _)) = self.order.front()
            && (noted.elapsed() >= KEPT_FOR || self.order.len() >= KEPT_MAX)
        {
            let Some((_, number, pair)) = self.order.pop_front() else { return };
            if self.by_pair.get(&pair).is_some_and(|(_, newest)| *newest == number) {
                self.by_pair.remove(&pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::lock::{LockId, ResourceId};

    fn pair(value: &str) -> Pair {
        Pair { key: ResourceId::new("k").unwrap(), value: LockId::new(value).unwrap() }
    }

    fn lost() -> Arc<LostReplies> {
        Arc::new(LostReplies::default())
    }

    fn acquired(lost: &LostReplies, value: &str) -> RequestId {
        let request_id = RequestId::publishing();
        lost.note(pair(value), Effect::Acquired(request_id.clone()));
        request_id
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_found_once_and_by_its_own_pair() {
        let lost = lost();
        lost.note(pair("a"), Effect::Released);
        assert!(!lost.take_released(&pair("b")));
        assert_eq!(lost.retried(&pair("a")).request_id(), None);
        assert!(lost.take_released(&pair("a")));
        assert!(!lost.take_released(&pair("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_forgotten_after_ten_seconds() {
        let lost = lost();
        let [first, _] = ["a", "b"].map(|value| acquired(&lost, value));
        advance(KEPT_FOR - Duration::from_millis(1)).await;
        let found = lost.retried(&pair("a"));
        assert_eq!(found.request_id(), Some(first));
        found.forget();
        advance(Duration::from_millis(1)).await;
        assert_eq!(lost.retried(&pair("b")).request_id(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_effect_is_forgotten_for_one_too_many() {
        let lost = lost();
        for i in 0..=KEPT_MAX {
            lost.note(pair(&i.to_string()), Effect::Released);
        }
        assert!(!lost.take_released(&pair("0")));
        assert!(lost.take_released(&pair(&KEPT_MAX.to_string())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_effect_of_a_pair_outlives_the_age_of_the_former_one() {
        let lost = lost();
        lost.note(pair("a"), Effect::Released);
        advance(KEPT_FOR / 2).await;
        lost.note(pair("a"), Effect::Released);
        advance(KEPT_FOR / 2).await;
        assert!(lost.take_released(&pair("a")));
    }

    /// The retry of a retry once found nothing.
    #[tokio::test(start_paused = true)]
    async fn a_retry_that_is_cut_off_leaves_the_lock_to_the_next() {
        let lost = lost();
        let request_id = acquired(&lost, "a");
        drop(lost.retried(&pair("a")));
        assert_eq!(lost.retried(&pair("a")).request_id(), Some(request_id));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unlock_is_noted_unless_its_reply_was_read() {
        let lost = lost();
        Told::released(Arc::clone(&lost), pair("a")).was_read();
        assert!(!lost.take_released(&pair("a")));
        drop(Told::released(Arc::clone(&lost), pair("a")));
        assert!(lost.take_released(&pair("a")));
    }
}
