//! How long waiters and the processes of waiters have for what others depend on.

use std::{sync::LazyLock, time::Duration};

/// Divides the times, so that tests need not wait for them; only in debug builds. All processes
/// that share a server must have the same value, because the times are a part of the library.
const DIVISOR: &str = "LEASEHOLD_TEST_REDIS_TIMES_DIVISOR";

/// The times in use.
pub(super) static TIMES: LazyLock<Times> = LazyLock::new(|| {
    let text = if cfg!(debug_assertions) { std::env::var(DIVISOR).ok() } else { None };
    Times::divided_by(text.and_then(|text| text.parse().ok()).unwrap_or(1))
});

/// See [`TIMES`].
pub(super) struct Times {
    /// How long a waiter has to confirm a hand-over. A dead waiter delays the next by at most
    /// this.
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

impl Times {
    fn divided_by(divisor: u32) -> Self {
        let ms = |ms| Duration::from_millis(ms) / divisor.clamp(1, 20);
        Self {
            provisional: ms(2_000),
            lapsed: ms(2_000),
            look_max: ms(2_000),
            foreign: ms(900),
            answer: ms(2_000),
            pause: ms(5_000),
            reunion: ms(5_000),
        }
    }
}
