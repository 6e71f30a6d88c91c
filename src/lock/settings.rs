//! The settings of every store.

use std::time::Duration;

/// The limits of one store, all adjustable in its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The TTL of requests that name none (`ttl`); 30 s by default.
    pub ttl_default: Duration,
    /// The longest TTL that is granted (`maxTTL`); 24 h by default.
    pub ttl_max: Duration,
    /// How many may wait for one resource (`maxWaiters`); 10,000 by default.
    pub waiters_per_resource_max: usize,
    /// How many shared grants a resource may have (`maxHolders`); 10,000 by default.
    pub holders_per_resource_max: usize,
    /// How many may wait in the whole store: 100,000.
    pub waiters_max: usize,
    /// The time limit of a call that does not wait for a lock (`operationTimeout`); 5 s by
    /// default. It is also the longest outage that a wait survives.
    pub operation_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl_default: Duration::from_secs(30),
            ttl_max: Duration::from_secs(24 * 3600),
            waiters_per_resource_max: 10_000,
            holders_per_resource_max: 10_000,
            waiters_max: 100_000,
            operation_timeout: Duration::from_secs(5),
        }
    }
}
