//! What the clients lock.
//!
//! Most resources live for a fraction of a second, so that the history of each
//! is short enough to be checked for linearizability; a few live for the whole
//! run, so that tokens are compared across every fault.

use std::time::Duration;

use crate::clock::now_ns;

/// For how long a name is in use.
const PERIOD: Duration = Duration::from_millis(600);

/// A resource and what may be done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Whether it is waited for. A try on one that never is must be granted
    /// whenever nobody holds it.
    pub(super) is_waited_for: bool,
    /// Whether it is unlocked by force. A force whose outcome is unknown says
    /// little of the grants after it, so only some resources have any.
    pub(super) is_forced: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Names {
    began_ns: u64,
    of_each_kind: u32,
}

impl Names {
    pub(super) fn new(began_ns: u64, of_each_kind: u32) -> Self {
        Self { began_ns, of_each_kind: of_each_kind.max(1) }
    }

    pub(super) fn pick(&self, rng: &mut fastrand::Rng) -> Resource {
        let since = u128::from(now_ns().saturating_sub(self.began_ns));
        let period = since / PERIOD.as_nanos();
        let number = rng.u32(..self.of_each_kind);
        let is_forced = number % 3 == 0;
        match rng.u32(..100) {
            0..50 => Resource {
                name: format!("queued/{period}/{number}"),
                is_waited_for: true,
                is_forced,
            },
            50..85 => Resource {
                name: format!("tried/{period}/{number}"),
                is_waited_for: false,
                is_forced,
            },
            _ => Resource {
                name: format!("kept/{}", number % 2),
                is_waited_for: true,
                is_forced: number % 2 == 0 && rng.u32(..4) == 0,
            },
        }
    }
}
