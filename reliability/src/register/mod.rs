//! A register that many increment under a lock, and what fencing tokens are
//! for.
//!
//! A lock alone cannot keep a holder that was paused past its TTL from writing
//! once it goes on. A store that remembers the greatest token it has seen can:
//! it refuses the older one.

mod demonstration;
mod store;
mod worker;
mod workload;

pub use demonstration::demonstrate;
pub use store::{Content, Register, Stale};
pub use worker::{Settings as WorkerSettings, work};
pub use workload::{Counts, increment_under_faults};
