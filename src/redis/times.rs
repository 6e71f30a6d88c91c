//! How long waiters and the processes of waiters have for what others depend on.

use std::time::Duration;

/// The times in use. They are a part of the library's text, so changing one changes the names of
/// the functions, but not those of the keys: versions beside each other judge each other's
/// hand-overs, each by its own times.
pub(super) const TIMES: Times = Times {
    provisional: Duration::from_secs(2),
    lapsed: Duration::from_secs(2),
    look_max: Duration::from_secs(2),
    foreign: Duration::from_millis(900),
    answer: Duration::from_secs(2),
    pause: Duration::from_secs(5),
    reunion: Duration::from_secs(5),
};

/// See [`TIMES`].
pub(super) struct Times {
    /// How long a waiter has to confirm a hand-over. A dead process delays the next by
    /// this and the time in which it is asked for.
    pub(super) provisional: Duration,
    /// How long a hand-over that was not confirmed remains visible.
    pub(super) lapsed: Duration,
    /// The longest time between two looks of a process at a resource that it waits for.
    pub(super) look_max: Duration,
    /// How often to look at a resource that is locked without leasehold.
    pub(super) foreign: Duration,
    /// How long a process has to answer the question whether it is alive.
    pub(super) answer: Duration,
    /// The shortest time between two questions about the same queue.
    pub(super) pause: Duration,
    /// For how long after connecting a notice that reached nobody shows no death: the connections
    /// of others may have been lost together with the one before.
    pub(super) reunion: Duration,
}
