//! The resources of the clients.
//!
//! Most resources live for a fraction of a second, so that each run has many histories; a
//! few live for the whole run, so that tokens are compared across every fault.

use std::time::Duration;

use crate::clock::now_ns;

/// For how long a name is in use.
const PERIOD: Duration = Duration::from_millis(600);

/// How long a crowded name is in use, in periods.
const CROWDED_PERIODS: u128 = 6;

/// A resource and what may be done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Whether there are waits for it. Without waits, a try must be granted
    /// whenever nobody holds it.
    pub(super) is_waited_for: bool,
    /// Whether there are only waits for it, and many: long waits show the order
    /// of the queue.
    pub(super) is_crowded: bool,
    /// Whether it is unlocked by force. After a force of unknown outcome little
    /// is certain about later grants, so only some resources have any.
    pub(super) is_forced: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
    began_ns: u64,
    of_each_kind: u32,
}

impl Names {
    pub(super) fn new(prefix: String, began_ns: u64, of_each_kind: u32) -> Self {
        Self { prefix, began_ns, of_each_kind: of_each_kind.max(1) }
    }

    pub(super) fn pick(&self, rng: &mut fastrand::Rng) -> Resource {
        let since = u128::from(now_ns().saturating_sub(self.began_ns));
        let period = since / PERIOD.as_nanos();
        let number = rng.u32(..self.of_each_kind);
        let is_forced = number.is_multiple_of(3);
        let queued = |name: String| Resource {
            name: format!("{}{name}", self.prefix),
            is_waited_for: true,
            is_crowded: false,
            is_forced,
        };
        match rng.u32(..100) {
            0..45 => queued(format!("queued/{period}/{number}")),
            45..85 => {
                Resource { is_waited_for: false, ..queued(format!("tried/{period}/{number}")) }
            }
            85..92 => Resource {
                is_crowded: true,
                is_forced: false,
                ..queued(format!("crowded/{}", period / CROWDED_PERIODS))
            },
            _ => Resource {
                is_forced: number.is_multiple_of(2) && rng.u32(..4) == 0,
                ..queued(format!("kept/{}", number % 2))
            },
        }
    }
}
