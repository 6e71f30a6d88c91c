//! Replies that their clients may not have read, so that a retry finds its own outcome.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

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

/// An effect that a reply tells of. If this is dropped, the reply was not sent or may not have
/// been read: then the end of a lock is noted. A lock whose reply was not sent is released, so
/// that one is not.
#[derive(Debug)]
pub(super) struct Told {
    lost: Arc<LostReplies>,
    effect: Option<(Pair, Effect)>,
}

impl Told {
    /// An effect that no reply has told of yet.
    pub(super) fn new(lost: Arc<LostReplies>, pair: Pair, effect: Effect) -> Self {
        Self { lost, effect: Some((pair, effect)) }
    }

    /// The client has read the reply.
    pub(super) fn was_read(mut self) {
        self.effect = None;
    }

    /// The reply was sent, and did not arrive.
    pub(super) fn was_lost(mut self) {
        if let Some((pair, effect)) = self.effect.take() {
            self.lost.note(pair, effect);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some((pair, Effect::Released)) = self.effect.take() {
            self.lost.note(pair, Effect::Released);
        }
    }
}

/// The effects whose replies were lost.
#[derive(Debug, Default)]
pub(super) struct LostReplies(Mutex<HashMap<Pair, (Effect, Instant)>>);

impl LostReplies {
    /// Notes an effect whose reply was lost.
    pub(super) fn note(&self, pair: Pair, effect: Effect) {
        let now = Instant::now();
        let mut kept = self.0.lock();
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (_, noted)| now.duration_since(*noted) < KEPT_FOR);
        }
        if kept.len() >= KEPT_MAX
            && let Some(oldest) = kept.iter().min_by_key(|(_, (_, noted))| *noted)
        {
            let oldest = oldest.0.clone();
            kept.remove(&oldest);
        }
        kept.insert(pair, (effect, now));
    }

    /// Takes the request ID of a lock that the value took without learning of it. The caller
    /// repeats the request with it, so the store decides whether that lock still lives.
    pub(super) fn take_acquired(&self, pair: &Pair) -> Option<RequestId> {
        match self.take(pair, |effect| matches!(effect, Effect::Acquired(_)))? {
            Effect::Acquired(request_id) => Some(request_id),
            Effect::Released => None,
        }
    }

    /// Whether the value ended its lock without learning of it.
    pub(super) fn take_released(&self, pair: &Pair) -> bool {
        self.take(pair, |effect| *effect == Effect::Released).is_some()
    }

    fn take(&self, pair: &Pair, is_wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let mut kept = self.0.lock();
        if !is_wanted(&kept.get(pair)?.0) {
            return None;
        }
        let (effect, noted) = kept.remove(pair)?;
        (noted.elapsed() < KEPT_FOR).then_some(effect)
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

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_found_once_and_by_its_own_pair() {
        let lost = LostReplies::default();
        lost.note(pair("a"), Effect::Released);
        assert!(!lost.take_released(&pair("b")));
        assert_eq!(lost.take_acquired(&pair("a")), None);
        assert!(lost.take_released(&pair("a")));
        assert!(!lost.take_released(&pair("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_effect_is_forgotten_after_ten_seconds() {
        let lost = LostReplies::default();
        let request_id = RequestId::publishing();
        lost.note(pair("a"), Effect::Acquired(request_id.clone()));
        lost.note(pair("b"), Effect::Acquired(request_id.clone()));
        advance(KEPT_FOR - Duration::from_millis(1)).await;
        assert_eq!(lost.take_acquired(&pair("a")), Some(request_id));
        advance(Duration::from_millis(1)).await;
        assert_eq!(lost.take_acquired(&pair("b")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_effect_is_forgotten_for_one_too_many() {
        let lost = LostReplies::default();
        for i in 0..=KEPT_MAX {
            lost.note(pair(&i.to_string()), Effect::Released);
            if i == 0 {
                advance(Duration::from_millis(1)).await;
            }
        }
        assert!(!lost.take_released(&pair("0")));
        assert!(lost.take_released(&pair("1")));
    }
}
