//! The single task that processes due records.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold_lock::{
    Instant, LockError, Renewed,
    observe::{End, Outcome},
    sleep_until,
};
use tokio::{
    task::yield_now,
    time::{self, timeout_at},
};
use tracing::warn;

use super::{
    Change, Engine, HoldEnd, Resource, belief::Sending, lane::LanePermit, record::RecordId,
    renewal::Renewal, schedule::Due, table::Table,
};

/// How many due records are processed before other tasks run.
const BATCH: usize = 512;

/// When the driver runs next.
enum Next {
    /// At once: a batch was full.
    Now,
    /// At this time, or when it is woken earlier.
    Later(Option<Instant>),
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
            let Next::Later(next) = self.step(is_healthy) else {
                // Other tasks run, even if the driver has been woken meanwhile.
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
                // Without a sender, the last value stays.
                changed = healthy.changed(), if watching => watching = changed.is_ok(),
            }
        }
    }

    /// Processes due records.
    fn step(&self, healthy: bool) -> Next {
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
            let Some((id, permit)) = table.next_renewal(&self.0.wake) else {
                let next = table.next_due();
                if next.is_some_and(|next| next <= now) {
                    return Next::Now;
                }
                table.driver_wakes_at = next;
                return Next::Later(next);
            };
            if healthy {
                self.start_renewal(&mut table, id, permit);
            } else if let Some(record) = table.get_mut(id) {
                record.schedule.park();
                table.reschedule(id);
            }
        }
        Next::Now
    }

    /// The app is healthy again: renews locks that are still held.
    fn resume(&self) {
        let now = Instant::now();
        let mut table = self.table();
        for id in table.ids() {
            if table.get_mut(id).is_some_and(|record| record.schedule.resume(now)) {
                table.reschedule(id);
            }
        }
    }

    fn start_renewal(&self, table: &mut Table, id: RecordId, permit: LanePermit) {
        let Some(record) = table.get_mut(id) else { return };
        let patience = record.schedule.attempt_patience();
        let (resource, lock_id) = record.name();
        let engine = self.clone();
        let task = self.0.runtime.spawn(async move {
            let renew = |asked| resource.renew(&lock_id, Some(asked));
            let attempt = engine.attempt(id, patience, renew);
            let Some((sending, result)) = attempt.await else { return };
            drop(permit);
            engine.renewed(id, &sending, &result, None);
        });
        record.schedule.renewal = Renewal::UnderWay(task);
    }

    /// Sends a renewal, and another each time that there is no answer for `patience`. The
    /// answer of any of them counts for as long as the lock is held. `None` if it is gone.
    async fn attempt<Renewing: Future<Output = Result<Renewed, LockError>>>(
        &self,
        id: RecordId,
        patience: Duration,
        renew: impl Fn(Duration) -> Renewing,
    ) -> Option<(Sending, Renewing::Output)> {
        let mut under_way = FuturesUnordered::new();
        loop {
            // While the app is unhealthy, no further renewal is sent.
            if under_way.is_empty() || *self.0.healthy.borrow() {
                let sending = self.sends(id, None)?;
                let renewing = renew(sending.asked());
                under_way.push(async move { (sending, renewing.await) });
            }
            let until = time::Instant::now() + patience;
            while let Ok(Some((sending, result))) = timeout_at(until, under_way.next()).await {
                if settles(&result) || under_way.is_empty() {
                    return Some((sending, result));
                }
            }
        }
    }

    /// A request for the TTL `asked`, or for what renewals ask for, is sent now; `None` if the
    /// lock is gone.
    pub(super) fn sends(&self, id: RecordId, asked: Option<Duration>) -> Option<Sending> {
        let mut table = self.table();
        let schedule = &mut table.get_mut(id)?.schedule;
        let asked = asked.unwrap_or(schedule.belief.asked());
        let sending = schedule.sends(Instant::now(), asked);
        self.reschedule(&mut table, id);
        Some(sending)
    }

    /// The renewal that the calling task carried out has ended. Ignored if the task was
    /// cancelled or replaced meanwhile. `change` is what a renewal by the app also changes if it
    /// succeeds; `None` for the engine's own.
    pub(super) fn renewed(
        &self,
        id: RecordId,
        sending: &Sending,
        result: &Result<Renewed, LockError>,
        change: Option<Change>,
    ) {
        let now = Instant::now();
        let mut table = self.table();
        let Some(record) = table.get_mut(id) else { return };
        if !record.schedule.renewal.is_this_task() || record.keeper.is_nobody() {
            return;
        }
        let remaining =
            record.schedule.remaining_ratio(now).filter(|_| result.is_ok() && change.is_none());
        let observer = record.holding.resource.store().observer();
        observer.renewed(Outcome::of(result), remaining);
        if let Err(LockError::Unsupported(answer)) = result
            && record.schedule.automatic
        {
            let Resource { lock_store, id } = &record.holding.resource;
            warn!(store = %lock_store.name(), resource = id.as_str(),
                answer = &**answer,
                "the lock store cannot renew; the lock lasts until its TTL ends");
            lock_store.refused_to_renew();
            record.schedule.automatic = false;
        }
        match record.renewal_ended(sending, result, now) {
            None => {
                if let (Ok(_), Some(change)) = (result, change) {
                    record.change(change, sending.at());
                }
                self.reschedule(&mut table, id);
            }
            Some(HoldEnd::Lost(cause)) => self.lose(&mut table, id, cause),
            Some(ended) => {
                if let Some(mut record) = table.remove(id) {
                    record.tally.end(End::Unlocked);
                    record.keeper.notify(ended);
                }
            }
        }
    }
}

/// Whether no other attempt at the same renewal can have a better answer.
fn settles(result: &Result<Renewed, LockError>) -> bool {
    matches!(result, Ok(_) | Err(LockError::NotFound { .. } | LockError::Unsupported(_)))
}
