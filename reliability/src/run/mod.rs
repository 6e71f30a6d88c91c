//! One run: a world, client processes, faults from a seed, and the check of
//! what was recorded.

mod clients;
mod record;
mod round;
mod soak;
mod summary;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;

pub use record::{Record, check_folder};
pub use round::Plan;
pub use soak::{Growth, Soaked, soak};
pub use summary::{Report, Summary};

use crate::world::{Backend, Settings as WorldSettings, World};

/// What every run shares.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The backend.
    pub backend: Backend,
    /// The `leasehold` binary.
    pub leasehold: PathBuf,
    /// The etcd binary.
    pub etcd: PathBuf,
    /// This program, which client processes are run with.
    pub program: PathBuf,
    /// leasehold processes.
    pub processes: usize,
    /// Client processes.
    pub client_processes: u32,
    /// Clients in each.
    pub clients: u32,
    /// The longest pause between two calls of a client.
    pub pause_ms_max: u64,
    /// For how long faults are injected.
    pub faults_for: Duration,
    /// For how long the clients go on after the last.
    pub calm_for: Duration,
    /// The names of faults that are left out.
    pub without: Vec<String>,
    /// Where the runs' folders are made.
    pub folder: PathBuf,
}

impl Settings {
    /// The folder of one run.
    #[must_use]
    pub fn folder_of(&self, seed: u64) -> PathBuf {
        self.folder.join(format!("{}-{seed}", self.backend.name()))
    }

    fn world(&self, seed: u64) -> WorldSettings {
        WorldSettings {
            backend: self.backend,
            leasehold: self.leasehold.clone(),
            etcd: self.etcd.clone(),
            processes: self.processes,
            folder: self.folder_of(seed).join("world"),
        }
    }

    /// Starts a world in the folder of this seed, which is made anew.
    pub async fn start(&self, seed: u64) -> anyhow::Result<World> {
        let folder = self.folder_of(seed);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        std::fs::create_dir_all(&folder)?;
        World::start(&self.world(seed), seed).await
    }

    /// Carries out one run: a world of its own, one round in it. Its folder
    /// stays if anything was violated or went wrong, or if `keep` says so.
    pub async fn run(&self, seed: u64, keep: bool) -> anyhow::Result<Report> {
        let mut world = self.start(seed).await?;
        let folder = self.folder_of(seed);
        let carried_out =
            round::carry_out(self, &mut world, &Plan::of(self, seed), &folder).await;
        world.stop().await;
        let report = carried_out.with_context(|| {
            format!("seed {seed}; what was recorded is in {}", folder.display())
        })?;
        if report.verdict.findings().next().is_none() && !keep {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(report)
    }
}
