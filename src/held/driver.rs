//! The one task that acts on what is due.

use std::time::Duration;

use tokio::{
    task::yield_now,
    time::{Instant, sleep_until, timeout_at},
};
use tracing::warn;

use super::{
    Cause, Ended, Engine,
    lane::Place,
    record::RecordId,
    schedule::{Belief, Due},
    table::Table,
};
use crate::lock::{LockError, Renewed};

/// How many due records are acted on before others get a turn.
const BATCH: usize = 512;

/// A request that may change a grant's TTL, as it was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) at: Instant,
    pub(super) asked: Duration,
    pub(super) before: Belief,
}

/// Whether a request that ended so left the grant as it was.
pub(super) fn changed_nothing(error: &LockError) -> bool {
    matches!(
        error,
        LockError::StoreUnavailable(_)
            | LockError::InvalidRequest(_)
            | LockError::Unsupported(_)
            | LockError::Overloaded
            | LockError::ShuttingDown
    )
}

impl Engine {
    pub(super) async fn drive(self) {
        let mut healthy = self.0.healthy.clone();
        let (mut watching, mut was_healthy) = (true, true);
        while !self.0.closed.is_cancelled() {
            let is_healthy = *healthy.borrow_and_update();
            if is_healthy && !was_healthy {
                self.resume();
            }
            was_healthy = is_healthy;
            let Some(next) = self.step(is_healthy) else {
                yield_now().await;
                continue;
            };
            let timer = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // In this order, so that a simulated schedule can be repeated.
            tokio::select! {
                biased;
                () = self.0.closed.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = timer => {}
                // Without a sender, what it said last stays.
                changed = healthy.changed(), if watching => watching = changed.is_ok(),
            }
        }
    }

    /// Acts on what is due. Returns when the next is, or `None` if there is
    /// more to do now.
    #[allow(clippy::option_option, reason = "more to do now; nothing at all; then")]
    fn step(&self, healthy: bool) -> Option<Option<Instant>> {
        let now = Instant::now();
        let mut table = self.table();
        for _ in 0..BATCH {
            let Some((id, due)) = table.due(now) else { break };
            match due {
                Due::Renew if healthy => table.enqueue(id),
                Due::Renew => {
                    if let Some(record) = table.get_mut(id) {
                        record.schedule.park();
                    }
                    table.reschedule(id);
                }
                Due::Lose(cause) => self.lose(&mut table, id, cause),
                Due::Release => self.release_held_long_enough(&mut table, id),
            }
        }
        for _ in 0..BATCH {
            let Some((id, place)) = table.next_renewal(&self.0.wake) else {
                let next = table.next_due();
                if next.is_some_and(|next| next <= now) {
                    return None;
                }
                table.driver_wakes_at = next;
                return Some(next);
            };
            if healthy {
                self.start_renewal(&mut table, id, place);
            } else if let Some(record) = table.get_mut(id) {
                record.schedule.park();
                table.reschedule(id);
            }
        }
        None
    }

    /// The app is healthy again: renews what is still held.
    fn resume(&self) {
        let now = Instant::now();
        let mut table = self.table();
        for id in table.ids() {
            if table.get_mut(id).is_some_and(|record| record.schedule.resume(now)) {
                table.reschedule(id);
            }
        }
    }

    fn start_renewal(&self, table: &mut Table, id: RecordId, place: Place) {
        let Some(record) = table.get_mut(id) else { return };
        record.run += 1;
        let run = record.run;
        let until = record.schedule.attempt_until(Instant::now());
        let asked = record.schedule.asked();
        let (target, lock_id) = (record.target(), record.lock_id.clone());
        let engine = self.clone();
        record.renewal = Some(self.0.runtime.spawn(async move {
            let Some(sending) = engine.sends(id, asked) else { return };
            let result = timeout_at(until, target.renew(&lock_id, Some(asked)))
                .await
                .unwrap_or_else(|_| Err(LockError::OutcomeUnknown("no answer in time".into())));
            drop(place);
            engine.renewed(id, run, &sending, &result);
        }));
    }

    /// A renewal is sent now; `None` if the lock is gone.
    pub(super) fn sends(&self, id: RecordId, asked: Duration) -> Option<Sending> {
        let at = Instant::now();
        let mut table = self.table();
        let before = table.get_mut(id)?.schedule.sends(at, asked);
        self.reschedule(&mut table, id);
        Some(Sending { at, asked, before })
    }

    /// A renewal has ended.
    pub(super) fn renewed(
        &self,
        id: RecordId,
        run: u32,
        sending: &Sending,
        result: &Result<Renewed, LockError>,
    ) {
        let now = Instant::now();
        let mut table = self.table();
        let Some(record) = table.get_mut(id).filter(|record| record.run == run) else { return };
        record.renewal = None;
        match result {
            Ok(renewed) => {
                let (asked, keep_on) = (sending.asked, record.renewed);
                record.schedule.renewed(*renewed, asked, keep_on, fastrand::f64());
            }
            // Perhaps the unlock under way has taken place: its answer tells.
            Err(LockError::NotFound { .. }) if record.unlocks > 0 => {}
            // One whose outcome nobody learnt has.
            Err(LockError::NotFound { .. }) if record.unlock_unsure => {
                if let Some(mut record) = table.remove(id) {
                    record.tell_stream(Ended::Unlocked);
                }
                return;
            }
            Err(LockError::NotFound { .. }) => {
                let cause = match record.schedule.due(now) {
                    Some(Due::Lose(cause)) => cause,
                    _ => Cause::Forced,
                };
                return self.lose(&mut table, id, cause);
            }
            Err(error) => {
                if let LockError::Unsupported(answer) = error
                    && record.renewed
                {
                    warn!(store = %record.store.name(), resource = record.resource.as_str(),
                        answer = &**answer,
                        "the lock store cannot renew; the lock lasts until its TTL ends");
                    record.store.refused_to_renew();
                    record.renewed = false;
                }
                if changed_nothing(error) {
                    record.schedule.did_not_happen(sending.at, sending.before);
                }
                record.schedule.failed(now, record.renewed, fastrand::f64());
            }
        }
        self.reschedule(&mut table, id);
    }
}
