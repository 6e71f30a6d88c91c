//! Checked histories under faults: many clients use leasehold's processes on a
//! real backend while faults are injected, every call is recorded, and the
//! record is checked against leasehold's promises.
//!
//! - [`world`]: the servers and the leasehold processes of one run.
//! - [`faults`]: faults, chosen from a seed.
//! - [`client`]: the client processes that use them.
//! - [`history`]: recorded calls and their outcomes.
//! - [`check`]: checks a history against the promises.
//! - [`slots`]: the slots of a Redis Cluster.
//! - [`watch`]: watches the locks of a run, and compares its events with a list.
//! - [`register`]: a demonstration of fencing tokens, in numbers.
//! - [`run`]: everything together, once or many times.
//! - [`command`]: the command line.

pub mod check;
pub mod client;
pub mod clock;
pub mod command;
pub mod faults;
pub mod history;
pub mod register;
pub mod run;
pub mod slots;
pub mod watch;
pub mod world;
