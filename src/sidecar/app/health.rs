//! Whether the app is healthy: probes with daprd's rules and defaults.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::{debug, info, warn};

/// When to probe, and how to judge the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppHealthChecks {
    /// From one probe to the next (`--app-health-probe-interval`); 5 s.
    pub interval: Duration,
    /// How long a probe may take (`--app-health-probe-timeout`); 500 ms.
    pub timeout: Duration,
    /// How many probes in a row must fail for the app to be unhealthy
    /// (`--app-health-threshold`); 3.
    pub threshold: u32,
}

impl Default for AppHealthChecks {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_millis(500),
            threshold: 3,
        }
    }
}

/// Asks the app whether it is healthy.
pub trait AppProbe: Send + Sync + 'static {
    /// `Ok` if the app is healthy, otherwise the reason.
    fn probe(&self) -> impl Future<Output = Result<(), String>> + Send;
}

impl AppHealthChecks {
    /// Starts probing, at once and then at every interval, until the last
    /// receiver is dropped. The app is unhealthy until the first good probe;
    /// one good probe makes it healthy again. Must be called within a runtime.
    ///
    /// Consecutive failures are counted from the last good probe, as daprd
    /// documents its threshold (its own code goes on counting after a good
    /// one).
    #[must_use]
    pub fn start(self, app: impl AppProbe) -> watch::Receiver<bool> {
        let (healthy, receiver) = watch::channel(false);
        tokio::spawn(async move {
            let mut ticks = interval(self.interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failures = self.threshold;
            loop {
                tokio::select! {
                    () = healthy.closed() => return,
                    _ = ticks.tick() => {}
                }
                let answer = timeout(self.timeout, app.probe()).await;
                match answer.unwrap_or_else(|_| Err(format!("no answer in {:?}", self.timeout)))
                {
                    Ok(()) => failures = 0,
                    Err(why) => {
                        debug!(%why, "an app health probe failed");
                        failures = failures.saturating_add(1);
                        if failures == self.threshold {
                            warn!(%why, failures, "the app is unhealthy");
                        }
                    }
                }
                let is_healthy = failures < self.threshold;
                let changed = healthy
                    .send_if_modified(|was| std::mem::replace(was, is_healthy) != is_healthy);
                if changed && is_healthy {
                    info!("the app is healthy");
                }
            }
        });
        receiver
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::{Instant, advance, sleep};

    use super::*;

    /// Answers by a script: `+` healthy, `-` not, `.` never; then the last.
    struct Script(&'static str, AtomicUsize);

    impl AppProbe for Arc<Script> {
        async fn probe(&self) -> Result<(), String> {
            let at = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
            match self.0.as_bytes()[at] {
                b'+' => Ok(()),
                b'-' => Err("503".to_owned()),
                _ => std::future::pending().await,
            }
        }
    }

    /// The published health after each of the script's probes, with daprd's defaults.
    async fn published(script: &'static str) -> String {
        let checks = AppHealthChecks::default();
        let probe = Arc::new(Script(script, AtomicUsize::new(0)));
        let healthy = checks.start(probe);
        assert!(!*healthy.borrow(), "healthy before any probe");
        let mut published = String::new();
        for _ in 0..script.len() {
            sleep(Duration::from_secs(1)).await;
            published.push(if *healthy.borrow() { '+' } else { '-' });
            sleep(Duration::from_secs(4)).await;
        }
        published
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_good_probe_makes_the_app_healthy() {
        assert_eq!(published("--+").await, "--+");
    }

    #[tokio::test(start_paused = true)]
    async fn three_failures_in_a_row_make_it_unhealthy_and_one_good_probe_heals() {
        assert_eq!(published("+--+--+---+").await, "+++++++++-+");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_without_an_answer_is_a_failure() {
        assert_eq!(published("+...").await, "+++-");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_probe_is_sent_at_once() {
        let probe = Arc::new(Script("+", AtomicUsize::new(0)));
        let mut healthy = AppHealthChecks::default().start(probe);
        let started = Instant::now();
        healthy.wait_for(|healthy| *healthy).await.unwrap();
        assert!(started.elapsed() < Duration::from_millis(100));
    }

    #[tokio::test(start_paused = true)]
    async fn probing_ends_with_the_last_receiver() {
        let probe = Arc::new(Script("+", AtomicUsize::new(0)));
        let healthy = AppHealthChecks::default().start(Arc::clone(&probe));
        sleep(Duration::from_secs(6)).await;
        drop(healthy);
        sleep(Duration::from_millis(1)).await;
        let probes = probe.1.load(Ordering::Relaxed);
        advance(Duration::from_secs(60)).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(probe.1.load(Ordering::Relaxed), probes);
    }
}
