//! A register that many processes increment under a lock: a demonstration of
//! fencing tokens.
//!
//! A lock alone cannot stop a holder that was paused past its TTL from writing
//! once it resumes. A store that remembers the greatest token can: it refuses
//! older ones.

mod demonstration;
mod store;
mod worker;
mod workload;

pub use demonstration::demonstrate;
pub use store::{Content, Register, Stale};
pub use worker::{Settings as WorkerSettings, work};
pub use workload::{Counts, increment_under_faults};
