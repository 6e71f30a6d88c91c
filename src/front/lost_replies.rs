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
/// of it. Everything else is then found by a retry.
#[derive(Debug)]
pub(super) struct Told {
    lost: Arc<LostReplies>,
    told: Option<(Pair, What)>,
    /// Releases a new lock unless it is accepted.
    receipt: Option<Receipt>,
}

#[derive(Debug)]
enum What {
    Acquired(RequestId),
    /// The end of a lock is noted at once under this number, and found once the reply is lost. So
    /// a lock that the value takes meanwhile can revoke the note.
    Released(u64),
}

impl Told {
    /// The client took a lock.
    pub(super) fn acquired(
        lost: Arc<LostReplies>,
        effect: Option<(Pair, RequestId)>,
        receipt: Receipt,
    ) -> Self {
        let told = effect.map(|(pair, request_id)| (pair, What::Acquired(request_id)));
        Self { lost, told, receipt: Some(receipt) }
    }

    /// The client ended its lock.
    pub(super) fn released(lost: Arc<LostReplies>, pair: Pair) -> Self {
        let number = lost.note(pair.clone(), Effect::Released, false);
        Self { lost, told: Some((pair, What::Released(number))), receipt: None }
    }

    /// The transport has taken the whole reply, so a new lock is left to its TTL.
    pub(super) fn was_sent(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            receipt.accept();
        }
    }

    /// Whether it tells of a lock that was taken.
    pub(super) fn is_of_a_grant(&self) -> bool {
        matches!(self.told, Some((_, What::Acquired(_))))
    }

    /// The client has read the reply.
    pub(super) fn was_read(mut self) {
        if let Some((pair, What::Released(number))) = self.told.take() {
            self.lost.forget(&pair, number);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let is_undone = self.receipt.as_ref().is_some_and(Receipt::undoes);
        match self.told.take() {
            Some((pair, What::Acquired(request_id))) if !is_undone => {
                self.lost.note(pair, Effect::Acquired(request_id), true);
            }
            Some((pair, What::Released(number))) => self.lost.is_lost(&pair, number),
            _ => {}
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
            self.lost.note(pair, Effect::Acquired(request_id), true);
        }
    }
}

/// The effects whose replies were lost.
#[derive(Debug, Default)]
pub(super) struct LostReplies(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_pair: HashMap<Pair, Note>,
    /// When each was noted, oldest first. An entry whose number is not that of its pair any more
    /// is a former one.
    order: VecDeque<(Instant, u64, Pair)>,
    numbers: u64,
    /// The values that are unlocking, and how often.
    releasing: HashMap<Pair, usize>,
}

#[derive(Debug)]
struct Note {
    effect: Effect,
    number: u64,
    /// Whether a retry may find it.
    is_lost: bool,
}

impl LostReplies {
    /// Notes an effect, and returns its number.
    fn note(&self, pair: Pair, effect: Effect, is_lost: bool) -> u64 {
        let mut kept = self.0.lock();
        kept.forget_old();
        kept.numbers += 1;
        let number = kept.numbers;
        kept.order.push_back((Instant::now(), number, pair.clone()));
        kept.by_pair.insert(pair, Note { effect, number, is_lost });
        number
    }

    /// A retry may find the note of this number from now on.
    fn is_lost(&self, pair: &Pair, number: u64) {
        let mut kept = self.0.lock();
        if let Some(note) = kept.by_pair.get_mut(pair).filter(|note| note.number == number) {
            note.is_lost = true;
        }
    }

    fn forget(&self, pair: &Pair, number: u64) {
        let mut kept = self.0.lock();
        if kept.by_pair.get(pair).is_some_and(|note| note.number == number) {
            kept.by_pair.remove(pair);
        }
    }

    /// Takes the request ID of a lock that the value took without learning of it.
    pub(super) fn retried(self: &Arc<Self>, pair: &Pair) -> Retried {
        let taken =
            self.take(pair, |note| note.is_lost && matches!(note.effect, Effect::Acquired(_)));
        let noted = match taken {
            Some(Effect::Acquired(request_id)) => Some((pair.clone(), request_id)),
            _ => None,
        };
        Retried { lost: Arc::clone(self), noted }
    }

    /// Whether the value ended its lock without learning of it.
    pub(super) fn take_released(&self, pair: &Pair) -> bool {
        self.take(pair, |note| note.is_lost && note.effect == Effect::Released).is_some()
    }

    /// The value has tried to take the lock again, so the end of an earlier one is answered to
    /// nobody any more.
    pub(super) fn forget_released(&self, pair: &Pair) {
        self.take(pair, |note| note.effect == Effect::Released);
    }

    /// Notes that a value is unlocking, until the guard is dropped.
    pub(super) fn releasing(self: &Arc<Self>, pair: Pair) -> Releasing {
        *self.0.lock().releasing.entry(pair.clone()).or_default() += 1;
        Releasing { lost: Arc::clone(self), pair }
    }

    /// Whether a value is unlocking.
    pub(super) fn is_releasing(&self, pair: &Pair) -> bool {
        self.0.lock().releasing.contains_key(pair)
    }

    fn take(&self, pair: &Pair, is_wanted: impl Fn(&Note) -> bool) -> Option<Effect> {
        let mut kept = self.0.lock();
        kept.forget_old();
        if !is_wanted(kept.by_pair.get(pair)?) {
            return None;
        }
        kept.by_pair.remove(pair).map(|note| note.effect)
    }
}

/// An unlock that is under way.
#[derive(Debug)]
pub(super) struct Releasing {
    lost: Arc<LostReplies>,
    pair: Pair,
}

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut kept = self.lost.0.lock();
        if let Some(count) = kept.releasing.get_mut(&self.pair) {
            *count -= 1;
            if *count == 0 {
                kept.releasing.remove(&self.pair);
            }
        }
    }
}

impl Kept {
    fn forget_old(&mut self) {
        while let Some((noted, _, _)) = self.order.front()
            && (noted.elapsed() >= KEPT_FOR || self.order.len() >= KEPT_MAX)
        {
            let Some((_, number, pair)) = self.order.pop_front() else { return };
            if self.by_pair.get(&pair).is_some_and(|newest| newest.number == number) {
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
        lost.note(pair(value), Effect::Acquired(request_id.clone()), true);
        request_id
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_found_once_and_by_its_own_pair() {
        let lost = lost();
        lost.note(pair("a"), Effect::Released, true);
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
            lost.note(pair(&i.to_string()), Effect::Released, true);
        }
        assert!(!lost.take_released(&pair("0")));
        assert!(lost.take_released(&pair(&KEPT_MAX.to_string())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_effect_of_a_pair_outlives_the_age_of_the_former_one() {
        let lost = lost();
        lost.note(pair("a"), Effect::Released, true);
        advance(KEPT_FOR / 2).await;
        lost.note(pair("a"), Effect::Released, true);
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

    #[tokio::test(start_paused = true)]
    async fn an_unlock_is_not_found_while_its_reply_may_still_be_read() {
        let lost = lost();
        let _told = Told::released(Arc::clone(&lost), pair("a"));
        assert!(!lost.take_released(&pair("a")));
    }

    /// The end of an earlier lock was once told of a later one.
    #[tokio::test(start_paused = true)]
    async fn a_later_lock_revokes_what_is_not_lost_yet() {
        let lost = lost();
        let told = Told::released(Arc::clone(&lost), pair("a"));
        lost.forget_released(&pair("a"));
        drop(told);
        assert!(!lost.take_released(&pair("a")));
    }

    #[test]
    fn a_value_is_unlocking_until_its_last_unlock_has_ended() {
        let lost = lost();
        let both = [lost.releasing(pair("a")), lost.releasing(pair("a"))];
        let [first, second] = both;
        drop(first);
        assert!(lost.is_releasing(&pair("a")) && !lost.is_releasing(&pair("b")));
        drop(second);
        assert!(!lost.is_releasing(&pair("a")));
    }
}
