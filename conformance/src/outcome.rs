//! The outcomes of cases.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::case::CaseInfo;

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store conforms.
    Passed,
    /// The store does not conform, and how.
    Failed(String),
    /// The case does not apply, and why.
    Ignored(String),
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The case.
    pub case: CaseInfo,
    /// The outcome.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// Collects the reports of a run; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    reports: Arc<Mutex<Vec<Report>>>,
}

impl Recorder {
    /// The reports so far, in the order in which the cases ended.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.lock().clone()
    }

    pub(crate) fn record(&self, report: Report) {
        self.reports.lock().push(report);
    }
}
