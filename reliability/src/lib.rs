//! Checked histories under faults: many clients use leasehold's processes on a
//! real backend while faults are injected, every call is recorded, and the
//! record is held to what leasehold promises.
//!
//! - [`world`]: the servers and the leasehold processes of one run.
//! - [`faults`]: what is done to them, chosen from a seed.
//! - [`proxy`]: a network that misbehaves on demand.

pub mod clock;
pub mod faults;
pub mod proxy;
pub mod world;
