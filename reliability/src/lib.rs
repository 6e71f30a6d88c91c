//! Checked histories under faults: many clients use leasehold's processes on a
//! real backend while faults are injected, every call is recorded, and the
//! record is held to what leasehold promises.
//!
//! - [`world`]: the servers and the leasehold processes of one run.
//! - [`faults`]: what is done to them, chosen from a seed.
//! - [`client`]: the client processes that use them.
//! - [`history`]: what was asked and what came of it.
//! - [`check`]: holds a history to the promises.
//! - [`watch`]: watches the locks of a run, and compares what is told with a list.
//! - [`register`]: what fencing tokens are for, in numbers.
//! - [`run`]: all of it together, once or many times.
//! - [`command`]: the command line.

pub mod check;
pub mod client;
pub mod clock;
pub mod command;
pub mod faults;
pub mod history;
pub mod register;
pub mod run;
pub mod watch;
pub mod world;
