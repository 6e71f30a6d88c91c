//! The names, labels and buckets of the series that a store has.

use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, Result,
    core::Collector,
};

/// From a millisecond to an hour.
const WAIT_BUCKETS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 900.0, 3600.0,
];
/// From 10 ms to a day.
const HOLD_BUCKETS: [f64; 10] =
    [0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// From half a millisecond to the default of `operationTimeout`.
const BACKEND_BUCKETS: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
const RATIO_BUCKETS: [f64; 10] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// What the stores of every command have.
pub(crate) struct StoreFamilies {
    pub(crate) acquisitions: IntCounterVec,
    pub(crate) wait_seconds: HistogramVec,
    pub(crate) waiters: IntGaugeVec,
    pub(crate) waiters_limit: IntGaugeVec,
    pub(crate) oldest_wait: GaugeVec,
    pub(crate) backend_seconds: HistogramVec,
    pub(crate) reconnects: IntCounterVec,
    pub(crate) undone_grants: IntCounterVec,
    pub(crate) unsettled: IntGaugeVec,
    pub(crate) unsettled_limit: IntGaugeVec,
    pub(crate) force_unlocks: IntCounterVec,
    pub(crate) watches: IntGaugeVec,
    pub(crate) info: IntGaugeVec,
}

/// What only the sidecar has, which holds locks for its app.
pub(crate) struct HeldFamilies {
    pub(crate) held: IntGaugeVec,
    pub(crate) hold_seconds: HistogramVec,
    pub(crate) lost: IntCounterVec,
    pub(crate) renewals: IntCounterVec,
    pub(crate) load_failed: IntGaugeVec,
    pub(crate) remaining_ratio: HistogramVec,
    pub(crate) notices: IntCounterVec,
}

impl StoreFamilies {
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let r = registry;
        Ok(Self {
            acquisitions: counter(
                r,
                "leasehold_acquisitions_total",
                "Calls to acquire a lock that have ended.",
                &["store", "op", "mode", "result"],
            )?,
            wait_seconds: histogram(
                r,
                "leasehold_wait_seconds",
                "Time from the arrival of a waiting call to its end.",
                &["store", "result"],
                &WAIT_BUCKETS,
            )?,
            waiters: gauge(
                r,
                "leasehold_waiters",
                "Waiting calls of this process that have not ended.",
                &["store"],
            )?,
            waiters_limit: gauge(
                r,
                "leasehold_waiters_limit",
                "Calls of this process that may wait in a store.",
                &["store"],
            )?,
            oldest_wait: registered(
                r,
                GaugeVec::new(
                    Opts::new(
                        "leasehold_oldest_wait_seconds",
                        "For how long the oldest waiting call of this process has waited.",
                    ),
                    &["store"],
                )?,
            )?,
            backend_seconds: histogram(
                r,
                "leasehold_backend_operation_duration_seconds",
                "Time that the backend took for a call that does not wait for a lock.",
                &["store", "op", "result"],
                &BACKEND_BUCKETS,
            )?,
            reconnects: counter(
                r,
                "leasehold_backend_reconnects_total",
                "Connections to the backend that took the place of a lost one.",
                &["store"],
            )?,
            undone_grants: counter(
                r,
                "leasehold_undone_grants_total",
                "Grants that nobody received, and that were released.",
                &["store"],
            )?,
            unsettled: gauge(
                r,
                "leasehold_unsettled_operations",
                "Releases that are carried out in the background until they are confirmed.",
                &["store"],
            )?,
            unsettled_limit: gauge(
                r,
                "leasehold_unsettled_operations_limit",
                "Unsettled operations at which nothing more is acquired.",
                &["store"],
            )?,
            force_unlocks: counter(
                r,
                "leasehold_force_unlocks_total",
                "Calls that end the grants of other holders.",
                &["store", "result"],
            )?,
            watches: gauge(
                r,
                "leasehold_watches",
                "Watches of a store's changes that are open.",
                &["store"],
            )?,
            info: gauge(
                r,
                "leasehold_store_info",
                "The stores of this process and their types.",
                &["store", "type"],
            )?,
        })
    }
}

impl HeldFamilies {
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let r = registry;
        Ok(Self {
            held: gauge(
                r,
                "leasehold_held_locks",
                "Locks that this process holds for its app, those being released included.",
                &["store"],
            )?,
            hold_seconds: histogram(
                r,
                "leasehold_hold_seconds",
                "For how long locks were held that have ended.",
                &["store", "end"],
                &HOLD_BUCKETS,
            )?,
            lost: counter(
                r,
                "leasehold_lost_locks_total",
                "Held locks that ended without an unlock.",
                &["store", "cause"],
            )?,
            renewals: counter(
                r,
                "leasehold_renewals_total",
                "Renewals of held locks that were answered.",
                &["store", "result"],
            )?,
            load_failed: gauge(
                r,
                "leasehold_store_load_failed",
                "1 while a store that component YAML names could not be opened.",
                &["store"],
            )?,
            remaining_ratio: histogram(
                r,
                "leasehold_renewal_remaining_ratio",
                "The part of the TTL that was left when the sidecar had renewed a lock.",
                &["store"],
                &RATIO_BUCKETS,
            )?,
            notices: counter(
                r,
                "leasehold_lost_notices_total",
                "Notices of lost locks to the app.",
                &["result"],
            )?,
        })
    }
}

pub(crate) fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> Result<HistogramVec> {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(options, labels)?)
}
