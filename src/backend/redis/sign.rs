//! The sign of life of a process that waits.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::redis::{Cmd, cmd};
use tokio::time::Instant;

use super::scripts::SIGN;

/// Until when a sign saves a new waiter from giving one: while the regular
/// signs are on their way, there is always a later one.
const FRESH: Duration = Duration::from_secs(1);

/// How often signs are given while anybody waits.
pub(super) const PERIOD: Duration = Duration::from_millis(600);

/// Whether this process's sign of life is known to be there.
pub(super) struct Sign {
    key: String,
    given: Mutex<Option<Instant>>,
}

impl Sign {
    /// No sign yet of this process.
    pub(super) fn new(process: &str) -> Self {
        Self { key: format!("\x01a{process}"), given: Mutex::default() }
    }

    /// The command that gives it.
    pub(super) fn request(&self) -> Cmd {
        let mut request = cmd("SET");
        request.arg(&self.key).arg("").arg("PX").arg(SIGN.as_millis() as u64);
        request
    }

    /// The command that takes it away.
    pub(super) fn removal(&self) -> Cmd {
        let mut request = cmd("DEL");
        request.arg(&self.key);
        request
    }

    /// Notes that one was sent at `at`.
    pub(super) fn given(&self, at: Instant) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Whether a new waiter needs none.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_younger_than(FRESH)
    }

    /// Whether it is time for the next regular one.
    pub(super) fn is_due(&self) -> bool {
        !self.is_younger_than(PERIOD / 2)
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        let given = *self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.is_some_and(|given| given.elapsed() < age)
    }
}
