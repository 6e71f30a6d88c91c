//! An observer that records what is reported to it.

use std::{sync::Mutex, time::Duration};

use leasehold_lock::{
    Mode,
    observe::{AcquireOp, End, Notice, Observe, Outcome, Verb},
};
use tokio::time::Instant;

/// Records observations, one line each, and adds up those that are changes.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Recorded>);

/// What was observed so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Everything but changes and calls of the backend.
    pub lines: Vec<String>,
    /// The calls of the backend, and whether each failed.
    pub answers: Vec<(Verb, bool)>,
    /// The parts of the TTL that were left at renewals.
    pub remaining: Vec<f64>,
    /// Waits under way.
    pub waiting: i64,
    /// Releases that are not confirmed.
    pub unsettled: i64,
    /// Locks that are held.
    pub held: i64,
    /// Open watches.
    pub watching: i64,
}

impl Recorder {
    /// What was observed so far.
    pub fn recorded(&self) -> Recorded {
        self.0.lock().expect("a panic").clone()
    }

    /// The lines so far, which are forgotten.
    pub fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("a panic").lines)
    }

    fn note(&self, note: impl FnOnce(&mut Recorded)) {
        note(&mut self.0.lock().expect("a panic"));
    }

    fn line(&self, line: String) {
        self.note(|it| it.lines.push(line));
    }
}

impl Observe for Recorder {
    fn acquired(&self, call: AcquireOp, mode: Mode, outcome: Outcome) {
        self.line(format!("{} {}: {}", call.name(), mode.name(), name(outcome)));
    }

    fn wait_began(&self, _: Instant) {
        self.note(|it| it.waiting += 1);
    }

    fn wait_ended(&self, _: Instant, _: bool) {
        self.note(|it| it.waiting -= 1);
    }

    fn answered(&self, verb: Verb, _: Duration, failure: bool) {
        self.note(|it| it.answers.push((verb, failure)));
    }

    fn undone(&self) {
        self.line("undone".to_owned());
    }

    fn unsettled(&self, change: i64) {
        self.note(|it| it.unsettled += change);
    }

    fn forced(&self, outcome: Outcome) {
        self.line(format!("forced: {}", name(outcome)));
    }

    fn watching(&self, change: i64) {
        self.note(|it| it.watching += change);
    }

    fn held(&self, change: i64) {
        self.note(|it| it.held += change);
    }

    fn hold_ended(&self, end: End, held: Duration) {
        self.line(format!("{} after {held:?}", end.name()));
    }

    fn renewed(&self, outcome: Outcome, remaining: Option<f64>) {
        self.line(format!("renewed: {}", name(outcome)));
        self.note(|it| it.remaining.extend(remaining));
    }

    fn notified(&self, notice: Notice) {
        self.line(format!("notice {}", notice.name()));
    }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Failed(reason) => reason.name(),
        Outcome::Cancelled => "cancelled",
    }
}
