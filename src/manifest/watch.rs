//! Reads component YAML again when files change.

use std::{collections::BTreeMap, io, time::Duration};

use leasehold_util::signals::Hangup;
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use super::{Component, Loaded, Problem, Reloads, Resources};

/// How often the files are read. What was read counts if the next reading is the same, because
/// an editor or a deployment writes in several steps.
const INTERVAL: Duration = Duration::from_secs(1);
const CHANGES_MAX: usize = 64;

/// A change of a component. Removals are sent first.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was removed.
    Removed(Component),
    /// It is new, or its definition changed.
    Set(Component),
}

/// Why component YAML cannot be followed: SIGHUP cannot be listened for.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for SIGHUP: {0}")]
pub struct WatchError(#[from] io::Error);

/// Reads `resources` every second, and sends the changes since `loaded`, which was read last,
/// until the receiver is dropped. On SIGHUP, the problems that remain are logged again.
/// `reloads` learns the outcome before the changes are sent.
///
/// The components of a file that can no longer be read stay as they were. If the folders
/// cannot be read, nothing changes. Both are logged, with file, document and field. Must be
/// called within a runtime.
pub fn watch(
    resources: Resources,
    loaded: &Loaded,
    reloads: Reloads,
) -> Result<mpsc::Receiver<Change>, WatchError> {
    let mut hangup = Hangup::listen()?;
    let mut current = Current::default();
    current.replace(loaded.components.clone());
    let mut reported = texts(&loaded.problems);
    let (mut before, mut is_applied, mut is_first) = (None, false, true);
    let (changes, receiver) = mpsc::channel(CHANGES_MAX);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = changes.closed() => return,
                hung_up = timeout(INTERVAL, hangup.next()) => if hung_up.is_ok() {
                    info!("SIGHUP: reading component YAML again");
                    reported.clear();
                    is_applied = false;
                },
            }
            let resources = resources.clone();
            let reading =
                spawn_blocking(move || resources.load().map_err(|why| why.to_string()));
            let Ok(reading) = reading.await else { continue };
            if before.as_ref() != Some(&reading) {
                (before, is_applied) = (Some(reading), false);
                continue;
            }
            if std::mem::replace(&mut is_applied, true) {
                continue;
            }
            let problems = match &reading {
                Ok(loaded) => texts(&loaded.problems),
                Err(error) => vec![error.clone()],
            };
            // The first reading is that of the start, unless it shows a problem.
            if !std::mem::take(&mut is_first) || !problems.is_empty() {
                reloads.read(problems.is_empty());
            }
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
