//! Replies that their clients may not have read, so that a retry finds its own outcome.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::verb::Pair;
use crate::lock::RequestId;

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

/// The effects whose replies were lost, and the unlocks whose replies may still be lost.
#[derive(Debug, Default)]
pub(super) struct LostReplies(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Each with its number in `order`.
    lost: HashMap<Pair, (Effect, u64)>,
    /// When each effect was lost, oldest first. An entry whose number is not that of its pair any
    /// more is a former one.
    order: VecDeque<(Instant, u64, Pair)>,
    /// The number of the last unlock of each value whose reply is on its way. A try to take the
    /// lock removes it: what is lost after that is no answer to the value any more.
    unread_unlocks: HashMap<Pair, u64>,
    /// The unlocks that are under way, each with what ends when it does.
    unlocking: HashMap<Pair, Vec<CancellationToken>>,
    /// Counts effects.
    last_number: u64,
}

impl LostReplies {
    /// Notes an effect whose reply was lost.
    pub(super) fn add(&self, pair: Pair, effect: Effect) {
        self.0.lock().add(pair, effect);
    }

    /// Takes the request ID of a lock that the value took without learning of it.
    pub(super) fn take_acquired(&self, pair: &Pair) -> Option<RequestId> {
        match self.0.lock().take(pair, |effect| matches!(effect, Effect::Acquired(_)))? {
            Effect::Acquired(request_id) => Some(request_id),
            Effect::Released => None,
        }
    }

    /// Whether the value ended its lock without learning of it.
    pub(super) fn take_released(&self, pair: &Pair) -> bool {
        self.0.lock().take(pair, |effect| *effect == Effect::Released).is_some()
    }

    /// Notes that the value has ended its lock, and that the reply is on its way.
    pub(super) fn begin_reply_to_unlock(&self, pair: Pair) -> u64 {
        let mut inner = self.0.lock();
        let number = inner.next_number();
        inner.unread_unlocks.insert(pair, number);
        number
    }

    /// Notes what became of the reply to an unlock with this number.
    pub(super) fn end_reply_to_unlock(&self, pair: Pair, number: u64, is_lost: bool) {
        let mut inner = self.0.lock();
        if inner.unread_unlocks.get(&pair) == Some(&number) {
            inner.unread_unlocks.remove(&pair);
            if is_lost {
                inner.add(pair, Effect::Released);
            }
        }
    }

    /// Notes that the value has tried to take the lock again, so no reply to an earlier unlock
    /// concerns it any more.
    pub(super) fn forget_released(&self, pair: &Pair) {
        let mut inner = self.0.lock();
        inner.unread_unlocks.remove(pair);
        inner.take(pair, |effect| *effect == Effect::Released);
    }

    /// Notes an unlock, until the guard is dropped. Also returns the unlocks of the same value
    /// that began before and are still under way.
    pub(super) fn begin_unlock(
        self: &Arc<Self>,
        pair: Pair,
    ) -> (Unlocking, Vec<CancellationToken>) {
        let ended = CancellationToken::new();
        let mut inner = self.0.lock();
        let all = inner.unlocking.entry(pair.clone()).or_default();
        let earlier = all.clone();
        all.push(ended.clone());
        (Unlocking { lost: Arc::clone(self), pair, ended: Some(ended.drop_guard()) }, earlier)
    }
}

impl Inner {
    fn add(&mut self, pair: Pair, effect: Effect) {
        self.forget_old();
        let number = self.next_number();
        self.order.push_back((Instant::now(), number, pair.clone()));
        self.lost.insert(pair, (effect, number));
    }

    fn take(&mut self, pair: &Pair, is_wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        self.forget_old();
        if !is_wanted(&self.lost.get(pair)?.0) {
            return None;
        }
        self.lost.remove(pair).map(|(effect, _)| effect)
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn forget_old(&mut self) {
        while let Some((since, _, _)) = self.order.front()
            && (since.elapsed() >= KEPT_FOR || self.order.len() >= KEPT_MAX)
        {
            let Some((_, number, pair)) = self.order.pop_front() else { return };
            if self.lost.get(&pair).is_some_and(|(_, newest)| *newest == number) {
                self.lost.remove(&pair);
            }
        }
    }
}

/// An unlock that is under way.
#[derive(Debug)]
pub(super) struct Unlocking {
    lost: Arc<LostReplies>,
    pair: Pair,
    ended: Option<DropGuard>,
}

impl Drop for Unlocking {
    fn drop(&mut self) {
        self.ended = None;
        let mut inner = self.lost.0.lock();
        if let Some(all) = inner.unlocking.get_mut(&self.pair) {
            all.retain(|ended| !ended.is_cancelled());
            if all.is_empty() {
                inner.unlocking.remove(&self.pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn pair(value: &str) -> Pair {
        Pair { key: "k".parse().unwrap(), value: value.parse().unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_found_once_and_by_its_own_pair() {
        let lost = LostReplies::default();
        lost.add(pair("a"), Effect::Released);
        assert!(!lost.take_released(&pair("b")));
        assert_eq!(lost.take_acquired(&pair("a")), None);
        assert!(lost.take_released(&pair("a")));
        assert!(!lost.take_released(&pair("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_forgotten_after_ten_seconds() {
        let lost = LostReplies::default();
        let request_id = RequestId::publishing();
        lost.add(pair("a"), Effect::Acquired(request_id.clone()));
        lost.add(pair("b"), Effect::Released);
        advance(KEPT_FOR - Duration::from_millis(1)).await;
        assert_eq!(lost.take_acquired(&pair("a")), Some(request_id));
        advance(Duration::from_millis(1)).await;
        assert!(!lost.take_released(&pair("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_effect_is_forgotten_for_one_too_many() {
        let lost = LostReplies::default();
        for i in 0..=KEPT_MAX {
            lost.add(pair(&i.to_string()), Effect::Released);
        }
        assert!(!lost.take_released(&pair("0")));
        assert!(lost.take_released(&pair(&KEPT_MAX.to_string())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_effect_of_a_pair_outlives_the_age_of_the_former_one() {
        let lost = LostReplies::default();
        lost.add(pair("a"), Effect::Released);
        advance(KEPT_FOR / 2).await;
        lost.add(pair("a"), Effect::Released);
        advance(KEPT_FOR / 2).await;
        assert!(lost.take_released(&pair("a")));
    }

    #[test]
    fn an_unlock_waits_for_those_that_began_before_it() {
        let lost = Arc::new(LostReplies::default());
        let (first, none) = lost.begin_unlock(pair("a"));
        let (_second, earlier) = lost.begin_unlock(pair("a"));
        let (_other, none_of_other) = lost.begin_unlock(pair("b"));
        assert!(none.is_empty() && none_of_other.is_empty());
        assert!(!earlier[0].is_cancelled());
        drop(first);
        assert!(earlier[0].is_cancelled() && earlier.len() == 1);
    }

    #[test]
    fn nothing_is_kept_of_an_unlock_that_has_ended() {
        let lost = Arc::new(LostReplies::default());
        drop(lost.begin_unlock(pair("a")));
        assert!(lost.0.lock().unlocking.is_empty());
    }
}
