//! The series of one store.

use std::time::Duration;

use leasehold_lock::{
    Mode, Reason, Settings, UNSETTLED_MAX,
    observe::{AcquireOp, End, Notice, Observe, Outcome, Verb},
};
use prometheus::{Gauge, Histogram, IntCounter, IntGauge, Result};
use tokio::time::Instant;

use super::{
    families::{HeldFamilies, StoreFamilies},
    waits::Waits,
};

const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];
/// How many values [`result_index`] has.
const RESULTS: usize = 2 + Reason::ALL.len();

/// The series of one store, found once: an observation is additions to atomic numbers, and for a
/// wait a place among the others.
pub(crate) struct StoreSeries {
    /// By call, mode and result.
    acquisitions: Vec<IntCounter>,
    wait_ok: Histogram,
    wait_error: Histogram,
    waiters: IntGauge,
    waits: Waits,
    oldest_wait: Gauge,
    /// By verb.
    backend_ok: Vec<Histogram>,
    backend_error: Vec<Histogram>,
    reconnects: IntCounter,
    undone_grants: IntCounter,
    unsettled: IntGauge,
    /// By result.
    force_unlocks: Vec<IntCounter>,
    watches: IntGauge,
    held: Option<HeldSeries>,
}

struct HeldSeries {
    held: IntGauge,
    /// By end.
    hold_seconds: Vec<Histogram>,
    /// By end; the first two are `None`, because they are no losses.
    lost: Vec<Option<IntCounter>>,
    /// By result.
    renewals: Vec<IntCounter>,
    load_failed: IntGauge,
    remaining_ratio: Histogram,
    /// By what became of the notice.
    notices: Vec<IntCounter>,
}

impl StoreSeries {
    pub(crate) fn of(
        store: &str,
        kind: &str,
        families: &StoreFamilies,
        held: Option<&HeldFamilies>,
    ) -> Result<Self> {
        let f = families;
        let mut acquisitions = Vec::with_capacity(AcquireOp::ALL.len() * MODES.len() * RESULTS);
        for call in AcquireOp::ALL {
            for mode in MODES {
                for result in results() {
                    let labels = [store, call.name(), mode.name(), &result];
                    acquisitions.push(f.acquisitions.get_metric_with_label_values(&labels)?);
                }
            }
        }
        let backend = |result: &str| {
            Verb::ALL
                .iter()
                .map(|verb| {
                    let labels = [store, verb.name(), result];
                    f.backend_seconds.get_metric_with_label_values(&labels)
                })
                .collect::<Result<_>>()
        };
        let limit = |limit: usize| i64::try_from(limit).unwrap_or(i64::MAX);
        f.info.get_metric_with_label_values(&[store, kind])?.set(1);
        let waiters_max = Settings::default().waiters_max;
        f.waiters_limit.get_metric_with_label_values(&[store])?.set(limit(waiters_max));
        f.unsettled_limit.get_metric_with_label_values(&[store])?.set(limit(UNSETTLED_MAX));
        Ok(Self {
            acquisitions,
            wait_ok: f.wait_seconds.get_metric_with_label_values(&[store, "ok"])?,
            wait_error: f.wait_seconds.get_metric_with_label_values(&[store, "error"])?,
            waiters: f.waiters.get_metric_with_label_values(&[store])?,
            waits: Waits::default(),
            oldest_wait: f.oldest_wait.get_metric_with_label_values(&[store])?,
            backend_ok: backend("ok")?,
            backend_error: backend("error")?,
            reconnects: f.reconnects.get_metric_with_label_values(&[store])?,
            undone_grants: f.undone_grants.get_metric_with_label_values(&[store])?,
            unsettled: f.unsettled.get_metric_with_label_values(&[store])?,
            force_unlocks: results()
                .map(|result| f.force_unlocks.get_metric_with_label_values(&[store, &result]))
                .collect::<Result<_>>()?,
            watches: f.watches.get_metric_with_label_values(&[store])?,
            held: held.map(|families| HeldSeries::of(store, families)).transpose()?,
        })
    }

    /// Sets what is only known when it is asked for.
    pub(crate) fn refresh(&self) {
        self.oldest_wait.set(self.waits.oldest(Instant::now()).as_secs_f64());
    }
}

impl HeldSeries {
    fn of(store: &str, families: &HeldFamilies) -> Result<Self> {
        let f = families;
        let ends = || End::ALL.iter();
        let lost = |end: &End| {
            let labels = [store, end.name()];
            end.is_loss().then(|| f.lost.get_metric_with_label_values(&labels)).transpose()
        };
        Ok(Self {
            held: f.held.get_metric_with_label_values(&[store])?,
            hold_seconds: ends()
                .map(|end| f.hold_seconds.get_metric_with_label_values(&[store, end.name()]))
                .collect::<Result<_>>()?,
            lost: ends().map(lost).collect::<Result<_>>()?,
            renewals: results()
                .map(|result| f.renewals.get_metric_with_label_values(&[store, &result]))
                .collect::<Result<_>>()?,
            load_failed: f.load_failed.get_metric_with_label_values(&[store])?,
            remaining_ratio: f.remaining_ratio.get_metric_with_label_values(&[store])?,
            notices: Notice::ALL
                .iter()
                .map(|notice| f.notices.get_metric_with_label_values(&[notice.name()]))
                .collect::<Result<_>>()?,
        })
    }
}

impl Observe for StoreSeries {
    fn acquired(&self, call: AcquireOp, mode: Mode, outcome: Outcome) {
        let row = call as usize * MODES.len() + mode as usize;
        self.acquisitions[row * RESULTS + result_index(outcome)].inc();
    }

    fn wait_began(&self, began: Instant) {
        self.waiters.inc();
        self.waits.begin(began);
    }

    fn wait_ended(&self, began: Instant, granted: bool) {
        self.waiters.dec();
        self.waits.end(began);
        let waits = if granted { &self.wait_ok } else { &self.wait_error };
        waits.observe(began.elapsed().as_secs_f64());
    }

    fn answered(&self, verb: Verb, took: Duration, failure: bool) {
        let calls = if failure { &self.backend_error } else { &self.backend_ok };
        calls[verb as usize].observe(took.as_secs_f64());
    }

    fn reconnected(&self) {
        self.reconnects.inc();
    }

    fn undone(&self) {
        self.undone_grants.inc();
    }

    fn unsettled(&self, change: i64) {
        self.unsettled.add(change);
    }

    fn forced(&self, outcome: Outcome) {
        self.force_unlocks[result_index(outcome)].inc();
    }

    fn watching(&self, change: i64) {
        self.watches.add(change);
    }

    fn held(&self, change: i64) {
        let Some(held) = &self.held else { return };
        held.held.add(change);
    }

    fn hold_ended(&self, end: End, lasted: Duration) {
        let Some(held) = &self.held else { return };
        held.hold_seconds[end as usize].observe(lasted.as_secs_f64());
        if let Some(lost) = &held.lost[end as usize] {
            lost.inc();
        }
    }

    fn renewed(&self, outcome: Outcome, remaining: Option<f64>) {
        let Some(held) = &self.held else { return };
        held.renewals[result_index(outcome)].inc();
        if let Some(remaining) = remaining {
            held.remaining_ratio.observe(remaining);
        }
    }

    fn failed_to_open(&self, change: i64) {
        let Some(held) = &self.held else { return };
        held.load_failed.add(change);
    }

    fn notified(&self, notice: Notice) {
        let Some(held) = &self.held else { return };
        held.notices[notice as usize].inc();
    }
}

/// The values of `result`, in the order of [`result_index`].
fn results() -> impl Iterator<Item = String> {
    let reasons = Reason::ALL.iter().map(|reason| reason.name().to_lowercase());
    ["ok".to_owned(), "cancelled".to_owned()].into_iter().chain(reasons)
}

fn result_index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Ok => 0,
        Outcome::Cancelled => 1,
        Outcome::Failed(reason) => 2 + reason as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are used as indexes.
    #[test]
    fn every_list_of_labels_is_in_the_order_of_its_type() {
        let in_order = |indexes: Vec<usize>| indexes.iter().enumerate().all(|(i, at)| i == *at);
        assert!(in_order(AcquireOp::ALL.map(|it| it as usize).to_vec()));
        assert!(in_order(MODES.map(|it| it as usize).to_vec()));
        assert!(in_order(Verb::ALL.map(|it| it as usize).to_vec()));
        assert!(in_order(End::ALL.map(|it| it as usize).to_vec()));
        assert!(in_order(Notice::ALL.map(|it| it as usize).to_vec()));
        assert!(in_order(Reason::ALL.map(|it| it as usize).to_vec()));
    }
}
