//! One run: a world, client processes, faults from a seed, and the check of the
//! recorded history.

mod client_faults;
mod clients;
mod plan;
mod record;
mod round;
mod situation;
mod soak;
mod summary;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

pub(crate) use client_faults::{CROWD_FAULTS, FAULTS as CLIENT_FAULTS};
pub use plan::{Extra, Plan};
pub use record::{Record, check_folder};
pub use situation::Situation;
pub use soak::{Growth, Soaked, soak};
pub use summary::{Report, Summary};

use crate::world::{Backend, Settings as WorldSettings, World};

/// The settings of all runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The backend.
    pub backend: Backend,
    /// The `leasehold` binary.
    pub leasehold: PathBuf,
    /// The etcd binary.
    pub etcd: PathBuf,
    /// This program, which is also run for client processes.
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
    /// How long the clients continue after the last fault.
    pub calm_for: Duration,
    /// The names of faults that are left out.
    pub without: Vec<String>,
    /// The situation of the clients; drawn from the seed of each run if absent.
    pub situation: Option<Situation>,
    /// Where the folders of runs are created.
    pub folder: PathBuf,
}

/// Clears the folder for a run. A run with violations is kept under another
/// name, because a race may not recur.
fn clear(folder: &Path) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    if !record::found_something(folder) {
        return std::fs::remove_dir_all(folder);
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let other = |number: u32| folder.with_file_name(format!("{name}-before-{number}"));
    let free = (1..).map(other).find(|other| !other.exists());
    free.map_or(Ok(()), |free| std::fs::rename(folder, free))
}

impl Settings {
    /// The folder of one run.
    #[must_use]
    pub fn folder_of(&self, seed: u64) -> PathBuf {
        self.folder.join(format!("{}-{seed}", self.backend.name()))
    }

    fn world(&self, seed: u64, fronts: usize) -> WorldSettings {
        WorldSettings {
            backend: self.backend,
            leasehold: self.leasehold.clone(),
            etcd: self.etcd.clone(),
            processes: self.processes,
            fronts,
            operation_timeout: None,
            folder: self.folder_of(seed).join("world"),
        }
    }

    /// Starts a world in the folder of this seed, which is created anew.
    pub async fn start(&self, seed: u64) -> anyhow::Result<World> {
        self.start_with(seed, 0).await
    }

    /// Like [`Settings::start`], with fronts for clients of Redis.
    async fn start_with(&self, seed: u64, fronts: usize) -> anyhow::Result<World> {
        let folder = self.folder_of(seed);
        clear(&folder).with_context(|| folder.display().to_string())?;
        std::fs::create_dir_all(&folder)?;
        World::start(&self.world(seed, fronts), seed).await
    }

    /// Carries out one run: a world of its own, one round in it. Its folder
    /// stays if anything was violated or went wrong, or with `keep`.
    pub async fn run(&self, seed: u64, keep: bool) -> anyhow::Result<Report> {
        let (folder, plan) = (self.folder_of(seed), Plan::of(self, seed));
        let mut world = self.start_with(seed, plan.fronts()).await?;
        let carried_out = round::carry_out(self, &mut world, &plan, &folder, true).await;
        world.stop().await;
        let report = carried_out.with_context(|| {
            format!(
                "seed {seed} ({}); what was recorded is in {}",
                plan.situation.name(),
                folder.display()
            )
        })?;
        if report.verdict.violations.is_empty() && !keep {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(report)
    }
}
