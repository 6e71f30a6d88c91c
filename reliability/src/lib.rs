//! Checked histories under faults: many clients use leasehold's processes on a
//! real backend while faults are injected, every call is recorded, and the
//! record is held to what leasehold promises.
//!
//! - [`world`]: the servers and the leasehold processes of one run.
//! - [`faults`]: what is done to them, chosen from a seed.

pub mod clock;
pub mod faults;
pub mod world;
