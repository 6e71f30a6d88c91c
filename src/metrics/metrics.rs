//! The series of a process.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use leasehold_lock::{
    Clock,
    observe::{Observe, Observers, Unobserved},
};
use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter, IntGauge, Opts, Registry, Result, TextEncoder};
use tracing::{error, warn};

#[cfg(target_os = "linux")]
use super::process::ProcessSeries;
use super::{
    families::{HeldFamilies, StoreFamilies, registered},
    store::StoreSeries,
};

/// How many stores have series of their own. Further ones share those of [`OTHER`].
const STORES_MAX: usize = 50;
const OTHER: &str = "other";

/// What the process does, on which depends what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves stores.
    Stores,
    /// It also holds locks for an app, and follows component YAML.
    Sidecar {
        /// How many locks may be held.
        held_max: usize,
    },
}

/// The metrics of a process. Cheap to clone: all clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    families: StoreFamilies,
    held: Option<HeldFamilies>,
    /// By name.
    stores: Mutex<BTreeMap<String, Arc<StoreSeries>>>,
    draining: IntGauge,
    reloads: Option<ReloadSeries>,
    log_lines_dropped: IntCounter,
    log_lines_dropped_now: fn() -> u64,
    #[cfg(target_os = "linux")]
    process: ProcessSeries,
}

struct ReloadSeries {
    successful: IntGauge,
    at: Gauge,
}

impl Metrics {
    /// The metrics of a process in this role. `log_lines_dropped` returns how many log lines were
    /// dropped so far.
    pub fn new(role: Role, log_lines_dropped: fn() -> u64) -> Result<Self> {
        let registry = Registry::new();
        let (mut held, mut reloads) = (None, None);
        if let Role::Sidecar { held_max } = role {
            held = Some(HeldFamilies::register(&registry)?);
            gauge(
                &registry,
                "leasehold_held_locks_limit",
                "Locks that this process may hold for its app, in all stores.",
            )?
            .set(i64::try_from(held_max).unwrap_or(i64::MAX));
            reloads = Some(ReloadSeries::register(&registry)?);
        }
        let build = Opts::new("leasehold_build_info", "The version of leasehold.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&registry, IntGauge::with_opts(build)?)?.set(1);
        Ok(Self(Arc::new(Inner {
            families: StoreFamilies::register(&registry)?,
            held,
            stores: Mutex::default(),
            draining: gauge(
                &registry,
                "leasehold_draining",
                "1 once the process drains: it acquires nothing more.",
            )?,
            reloads,
            log_lines_dropped: registered(
                &registry,
                IntCounter::new(
                    "leasehold_log_lines_dropped_total",
                    "Log lines that were dropped because stderr was not read in time.",
                )?,
            )?,
            log_lines_dropped_now: log_lines_dropped,
            #[cfg(target_os = "linux")]
            process: ProcessSeries::register(&registry)?,
            registry,
        })))
    }

    /// Finds the observer of each store.
    #[must_use]
    pub fn observers(&self) -> Observers {
        let metrics = self.clone();
        Arc::new(move |name, kind| metrics.of_store(name, kind))
    }

    /// To be called when component YAML was read or applied again: with whether all of it could be.
    pub fn on_reload(&self) -> impl Fn(bool) + Send + Sync + use<> {
        let metrics = self.clone();
        move |successful| {
            if let Some(reloads) = &metrics.0.reloads {
                reloads.note(successful);
            }
        }
    }

    /// The process drains from now on.
    pub fn drain(&self) {
        self.0.draining.set(1);
    }

    /// All series, in the text format of Prometheus.
    pub fn text(&self) -> Result<String> {
        let inner = &self.0;
        for store in inner.stores.lock().values() {
            store.refresh();
        }
        #[cfg(target_os = "linux")]
        inner.process.refresh();
        let dropped = (inner.log_lines_dropped_now)();
        inner.log_lines_dropped.inc_by(dropped.saturating_sub(inner.log_lines_dropped.get()));
        TextEncoder::new().encode_to_string(&inner.registry.gather())
    }

    fn of_store(&self, name: &str, kind: &str) -> Arc<dyn Observe> {
        let mut stores = self.0.stores.lock();
        let named = stores.get(name).cloned();
        let series = named.map_or_else(|| self.add_store(&mut stores, name, kind), Ok);
        match series {
            Ok(series) => series,
            Err(why) => {
                error!(store = name, %why, "a store is without metrics; this is a defect");
                Unobserved::store()
            }
        }
    }

    fn add_store(
        &self,
        stores: &mut BTreeMap<String, Arc<StoreSeries>>,
        name: &str,
        kind: &str,
    ) -> Result<Arc<StoreSeries>> {
        let has_other = stores.contains_key(OTHER);
        let is_other = stores.len() - usize::from(has_other) >= STORES_MAX;
        if is_other && !has_other {
            warn!(store = name, "this and every further store is {OTHER:?} in metrics");
        }
        let (name, kind) = if is_other { (OTHER, OTHER) } else { (name, kind) };
        if let Some(other) = stores.get(name) {
            return Ok(Arc::clone(other));
        }
        let (families, held) = (&self.0.families, self.0.held.as_ref());
        let series = Arc::new(StoreSeries::of(name, kind, families, held)?);
        stores.insert(name.to_owned(), Arc::clone(&series));
        Ok(series)
    }
}

impl ReloadSeries {
    fn register(registry: &Registry) -> Result<Self> {
        let reloads = Self {
            successful: gauge(
                registry,
                "leasehold_component_reload_successful",
                "1 if the component YAML could be read and applied when it last changed.",
            )?,
            at: registered(
                registry,
                Gauge::new(
                    "leasehold_component_reload_timestamp_seconds",
                    "When component YAML was last read and applied.",
                )?,
            )?,
        };
        // The first reading is that of the start.
        reloads.note(true);
        Ok(reloads)
    }

    fn note(&self, successful: bool) {
        self.successful.set(successful.into());
        if successful {
            self.at.set(Duration::from_micros(Clock::system().unix_us()).as_secs_f64());
        }
    }
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge> {
    registered(registry, IntGauge::new(name, help)?)
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{
        Mode,
        observe::{AcquireOp, Outcome},
    };

    use super::*;

    const SIDECAR: Role = Role::Sidecar { held_max: 200_000 };

    fn metrics(role: Role) -> Metrics {
        Metrics::new(role, || 3).unwrap()
    }

    fn series(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn a_store_has_its_series_from_the_start() {
        let metrics = metrics(SIDECAR);
        metrics.observers()("s", "lock.memory");
        let text = metrics.text().unwrap();
        for expected in [
            r#"leasehold_acquisitions_total{mode="exclusive",op="try",result="ok",store="s"} 0"#,
            r#"leasehold_lost_locks_total{cause="max_hold",store="s"} 0"#,
            r#"leasehold_lost_notices_total{result="dropped"} 0"#,
            r#"leasehold_wait_seconds_count{result="error",store="s"} 0"#,
            r#"leasehold_store_info{store="s",type="lock.memory"} 1"#,
            r#"leasehold_held_locks_limit 200000"#,
            r#"leasehold_log_lines_dropped_total 3"#,
            r#"leasehold_component_reload_successful 1"#,
            r#"leasehold_draining 0"#,
        ] {
            assert!(series(&text).contains(&expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn a_store_has_less_than_a_thousand_series() {
        let metrics = metrics(SIDECAR);
        let before = series(&metrics.text().unwrap()).len();
        metrics.observers()("s", "lock.memory");
        let added = series(&metrics.text().unwrap()).len() - before;
        assert!(added <= 1000, "{added}");
    }

    #[test]
    fn the_fifty_first_store_and_all_further_ones_are_one() {
        let metrics = metrics(Role::Stores);
        let observers = metrics.observers();
        for store in 0..60 {
            let observer = observers(&format!("s{store}"), "lock.memory");
            observer.acquired(AcquireOp::Try, Mode::Exclusive, Outcome::Ok);
        }
        let text = metrics.text().unwrap();
        let infos = text.lines().filter(|line| line.starts_with("leasehold_store_info{"));
        assert_eq!(infos.count(), STORES_MAX + 1);
        let other = r#"{mode="exclusive",op="try",result="ok",store="other"} 10"#;
        assert!(text.contains(other), "{text}");
        // Those that are there keep their series.
        observers("s3", "lock.memory").reconnected();
        let known = r#"leasehold_backend_reconnects_total{store="s3"} 1"#;
        assert!(metrics.text().unwrap().contains(known));
    }

    #[test]
    fn a_store_that_is_named_other_shares_its_series() {
        let metrics = metrics(Role::Stores);
        for store in ["other".to_owned()].into_iter().chain((0..60).map(|n| n.to_string())) {
            metrics.observers()(&store, "lock.memory");
        }
        let text = metrics.text().unwrap();
        let infos = text.lines().filter(|line| line.starts_with("leasehold_store_info{"));
        assert_eq!(infos.count(), STORES_MAX + 1);
    }

    #[test]
    fn only_the_sidecar_has_the_series_of_held_locks() {
        let metrics = metrics(Role::Stores);
        metrics.observers()("s", "lock.memory");
        let text = metrics.text().unwrap();
        for family in ["held_locks", "hold_seconds", "lost_", "renewal", "component_reload"] {
            assert!(!text.contains(&format!("leasehold_{family}")), "{family}");
        }
    }

    #[test]
    fn a_failed_reload_keeps_the_time_of_the_last_good_one() {
        let metrics = metrics(SIDECAR);
        let value = |name: &str| {
            let text = metrics.text().unwrap();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        let at = value("leasehold_component_reload_timestamp_seconds");
        metrics.on_reload()(false);
        assert_eq!(value("leasehold_component_reload_successful"), "0");
        assert_eq!(value("leasehold_component_reload_timestamp_seconds"), at);
    }
}
