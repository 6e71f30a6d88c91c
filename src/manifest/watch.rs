//! Reads component YAML again when files change.

use std::{collections::BTreeMap, io, path::PathBuf, sync::Arc, time::Duration};

use leasehold_util::signals::Hangup;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::{Notify, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use super::{Component, Loaded, Problem, Resources};

/// Files are read when they have not changed for this long, because an editor or a
/// deployment writes in several steps.
const QUIET: Duration = Duration::from_millis(200);
/// Files are read at most this long after the first change.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(2);
/// Files are also read this often: a notification can be lost, and a replaced folder sends
/// none.
const INTERVAL: Duration = Duration::from_secs(30);
const CHANGES_MAX: usize = 64;

/// A change of a component. Removals are sent first.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was removed.
    Removed(Component),
    /// It is new, or its definition changed.
    Set(Component),
}

/// Why component YAML cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A folder cannot be watched.
    #[error("the resources path {} cannot be watched for changes: {error}", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        error: notify::Error,
    },
    /// SIGHUP cannot be listened for.
    #[error("cannot listen for SIGHUP: {0}")]
    Signal(#[from] io::Error),
}

/// Watches the folders of `resources` and sends the changes since `loaded`, which was read
/// last, until the receiver is dropped. On SIGHUP it reads the folders at once.
///
/// The components of a file that can no longer be read stay as they were. If the folders
/// cannot be read, nothing changes. Both are logged, with file, document and field. Must be
/// called within a runtime.
pub fn watch(
    resources: Resources,
    loaded: &Loaded,
) -> Result<mpsc::Receiver<Change>, WatchError> {
    let touched = Arc::new(Notify::new());
    let watcher = watch_folders(&resources.folders, Arc::clone(&touched))?;
    let mut hangup = Hangup::listen()?;
    let mut current = Current::default();
    current.replace(loaded.components.clone());
    let mut reported = texts(&loaded.problems);
    let (changes, receiver) = mpsc::channel(CHANGES_MAX);
    tokio::spawn(async move {
        let _watcher = watcher;
        loop {
            tokio::select! {
                () = changes.closed() => return,
                () = hangup.next() => {
                    info!("SIGHUP: reading component YAML again");
                    // Log again the problems that remain.
                    reported.clear();
                }
                _ = timeout(INTERVAL, touched.notified()) => {}
            }
            settle(&touched).await;
            let resources = resources.clone();
            let Ok(reading) = spawn_blocking(move || resources.load()).await else { continue };
            let problems = match &reading {
                Ok(loaded) => texts(&loaded.problems),
                Err(error) => vec![error.to_string()],
            };
            if problems != reported {
                for problem in &problems {
                    warn!("component YAML could not be read again: {problem}");
                }
                reported = problems;
            }
            let Ok(loaded) = reading else { continue };
            for change in current.advance(&loaded) {
                if changes.send(change).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

fn watch_folders(
    folders: &[PathBuf],
    touched: Arc<Notify>,
) -> Result<Option<RecommendedWatcher>, WatchError> {
    let Some(first) = folders.first() else { return Ok(None) };
    let mut watcher = notify::recommended_watcher(move |event| {
        if concerns_content(&event) {
            touched.notify_one();
        }
    })
    .map_err(|error| WatchError::Folder { folder: first.clone(), error })?;
    for folder in folders {
        watcher
            .watch(folder, RecursiveMode::NonRecursive)
            .map_err(|error| WatchError::Folder { folder: folder.clone(), error })?;
    }
    Ok(Some(watcher))
}

/// Whether the content of a file may have changed. Reading a file is an event too, and
/// must not cause another reading.
fn concerns_content(event: &notify::Result<Event>) -> bool {
    match event {
        Ok(event) => match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
            EventKind::Access(_) => false,
            _ => true,
        },
        Err(_) => true,
    }
}

async fn settle(touched: &Notify) {
    let latest = Instant::now() + QUIET_WAIT_MAX;
    while Instant::now() < latest {
        tokio::select! {
            () = touched.notified() => {}
            () = sleep(QUIET) => return,
        }
    }
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// The components as the receiver knows them.
#[derive(Default)]
struct Current(BTreeMap<String, Component>);

impl Current {
    fn replace(&mut self, components: Vec<Component>) {
        self.0 = components
            .into_iter()
            .map(|component| (component.name.clone(), component))
            .collect();
    }

    /// Applies a new reading, and returns the changes.
    fn advance(&mut self, loaded: &Loaded) -> Vec<Change> {
        let mut next = loaded.components.clone();
        let named = |name: &str| loaded.components.iter().any(|other| other.name == name);
        let is_broken =
            |of: &Component| loaded.problems.iter().any(|at| at.file() == of.origin.file());
        let mut changes = Vec::new();
        for known in self.0.values().filter(|known| !named(&known.name)) {
            if is_broken(known) {
                next.push(known.clone());
            } else {
                changes.push(Change::Removed(known.clone()));
            }
        }
        for component in &loaded.components {
            let known = self.0.get(&component.name);
            if known.is_none_or(|known| !component.differences(known).is_empty()) {
                changes.push(Change::Set(component.clone()));
            }
        }
        self.replace(next);
        changes
    }
}
