//! The files in a run's folder besides the histories and logs.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::{
    check::{Rule, Verdict, Violation, check, leases_left_max},
    faults::Injected,
    history::read_folder,
    watch::{Words, leaked},
    world::{Backend, etcd::LEASE},
};

const RECORD: &str = "run.json";
const FAULTS: &str = "faults.jsonl";
const WORDS: &str = "watched.txt";
const VIOLATIONS: &str = "violations.json";

/// A run's parameters and leftovers, so that its history can be checked again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The backend.
    pub backend: Backend,
    /// The seed of its choices.
    pub seed: u64,
    /// The leftovers on the backend at the end.
    pub left: Vec<String>,
    /// How the events of a watch differed from a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

impl Record {
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(folder.join(RECORD), serde_json::to_vec_pretty(self)?)?)
    }
}

/// Stores the words of a watch's events, to be searched for secrets.
pub(super) fn write_words(folder: &Path, words: &Words) -> anyhow::Result<()> {
    let lines: Vec<_> = words.sorted().collect();
    Ok(std::fs::write(folder.join(WORDS), lines.join("\n"))?)
}

/// Whether a folder is of a run with violations, or of one that was broken off.
pub(super) fn found_something(folder: &Path) -> bool {
    let violations = std::fs::read(folder.join(VIOLATIONS)).unwrap_or_default();
    serde_json::from_slice::<Vec<serde_json::Value>>(&violations)
        .map_or(true, |violations| !violations.is_empty())
}

/// The file of faults, which are recorded as they end.
#[derive(Debug)]
pub(super) struct FaultLog(File);

impl FaultLog {
    pub(super) fn append(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(FAULTS);
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(super) fn record(&mut self, fault: &Injected) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(fault)?;
        line.push(b'\n');
        Ok(self.0.write_all(&line)?)
    }
}

/// Checks a run from its folder, and records its violations.
pub fn check_folder(folder: &Path) -> anyhow::Result<(Record, Vec<Injected>, Verdict)> {
    let record = std::fs::read(folder.join(RECORD))
        .with_context(|| format!("{} is not the folder of a run", folder.display()))?;
    let record: Record = serde_json::from_slice(&record)?;
    let path = folder.join(FAULTS);
    let faults = std::fs::read_to_string(&path)
        .with_context(|| path.display().to_string())?
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Injected>, _>>()?;
    let operations = read_folder(folder)?;
    let mut verdict = check(record.backend, &operations, &faults);
    let words = std::fs::read_to_string(folder.join(WORDS)).unwrap_or_default();
    let leaked = leaked(&words.lines().collect(), &operations);
    let leases_max = leases_left_max(record.backend, &operations, &faults);
    let are_leases = record.left.iter().all(|left| left.starts_with(LEASE));
    let left: &[String] =
        if are_leases && record.left.len() <= leases_max { &[] } else { &record.left };
    for (rule, found) in [
        (Rule::NothingLeft, left),
        (Rule::WatchMatchesList, &record.differences[..]),
        (Rule::NoSecret, &leaked[..]),
    ] {
        if !found.is_empty() {
            let (resource, what, calls) = (String::new(), found.join("; "), Vec::new());
            verdict.violations.push(Violation { rule, resource, what, calls });
        }
    }
    let violations = folder.join(VIOLATIONS);
    let findings = &verdict.violations;
    std::fs::write(violations, serde_json::to_vec_pretty(&findings)?)?;
    Ok((record, faults, verdict))
}
