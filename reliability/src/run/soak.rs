//! Endless rounds over worlds that live for the whole time.

use std::{fmt, time::Duration};

use anyhow::Context as _;
use tokio::time::Instant;

use super::{Plan, Report, Settings, plan::FRONTS, round};
use crate::world::{Weight, World};

/// How much a process may grow beyond twice its memory.
const RSS_SLACK_BYTES: u64 = 8 * 1024 * 1024;
const DESCRIPTORS_SLACK: u64 = 8;

/// Faults that end a leasehold process.
const ENDING: [&str; 7] = [
    "leasehold-killed",
    "leasehold-vanished",
    "leasehold-restarted",
    "leasehold-restarted-in-turn",
    "crowd-killed-with-leasehold",
    "front-killed",
    "front-restarted",
];

/// A world of many rounds.
#[derive(Debug)]
pub struct Soaked {
    settings: Settings,
    world: World,
    seed: u64,
    rounds: u64,
    started: Vec<Weight>,
    used: Vec<Weight>,
}

/// The resources that the leasehold processes of a world used: at the start,
/// after the first round, when everything had been used once, and at the end.
#[derive(Clone, Debug)]
pub struct Growth {
    started: Vec<Weight>,
    used: Vec<Weight>,
    last: Vec<Weight>,
}

impl Growth {
    /// Whether no process has grown since the first round by more than an
    /// allocator's cache and a few connections.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        self.used.len() == self.last.len()
            && self.used.iter().zip(&self.last).all(|(used, last)| {
                last.rss_bytes <= 2 * used.rss_bytes + RSS_SLACK_BYTES
                    && last.descriptors <= used.descriptors + DESCRIPTORS_SLACK
            })
    }
}

impl Soaked {
    /// Starts the world of this seed. Its leasehold processes must live as long
    /// as it does, so faults that end one are left out.
    pub async fn start(mut settings: Settings, seed: u64) -> anyhow::Result<Self> {
        settings.without.extend(ENDING.map(String::from));
        let world = settings.start_with(seed, FRONTS).await?;
        let started = world.weights();
        Ok(Self { settings, world, seed, rounds: 0, started, used: Vec::new() })
    }

    /// The backend's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.settings.backend.name()
    }

    /// Carries one more round out. Its folder stays if it violates anything.
    pub async fn round(&mut self) -> anyhow::Result<Report> {
        self.rounds += 1;
        // An aborted round may have left its fault.
        self.world.heal().await?;
        let mut plan = Plan::of(&self.settings, self.seed.wrapping_add(self.rounds));
        // Each round has resources of its own.
        plan.name = format!("{}/", self.rounds);
        let folder = self.settings.folder_of(self.seed).join(format!("round-{}", self.rounds));
        let report = round::carry_out(&self.settings, &mut self.world, &plan, &folder, false)
            .await
            .with_context(|| folder.display().to_string())?;
        if report.verdict.violations.is_empty() {
            std::fs::remove_dir_all(&folder)?;
        }
        if self.used.is_empty() {
            self.used.clone_from(&report.weights);
        }
        Ok(report)
    }

    /// Ends it. Returns the growth of its leasehold processes.
    pub async fn stop(self) -> Growth {
        let last = self.world.weights();
        self.world.stop().await;
        Growth { started: self.started, used: self.used, last }
    }
}

/// Runs rounds on one world after the other until the time is over. Each result
/// is passed to `on_report`.
pub async fn soak(
    worlds: &mut [Soaked],
    during: Duration,
    mut on_report: impl FnMut(&Soaked, anyhow::Result<Report>),
) {
    let until = Instant::now() + during;
    while Instant::now() < until {
        for world in &mut *worlds {
            let report = world.round().await;
            on_report(world, report);
        }
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (when, weights) in [
            ("at the start", &self.started),
            ("after the first round", &self.used),
            ("at the end", &self.last),
        ] {
            for Weight { name, rss_bytes, descriptors } in weights {
                let kib = rss_bytes / 1024;
                writeln!(f, "  {name} {when}: RSS {kib} KiB, {descriptors} descriptors")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_keeps_growing_is_reported() {
        let weights = |rss_mib: u64, descriptors| {
            let rss_bytes = rss_mib * 1024 * 1024;
            vec![Weight { name: "leasehold-0".into(), rss_bytes, descriptors }]
        };
        let is_flat =
            |last| Growth { started: weights(12, 12), used: weights(14, 13), last }.is_flat();
        assert!(is_flat(weights(19, 15)));
        assert!(!is_flat(weights(90, 15)));
        assert!(!is_flat(weights(14, 60)));
        assert!(!is_flat(Vec::new()), "it has ended");
    }
}
