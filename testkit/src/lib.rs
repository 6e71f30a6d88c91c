//! Shared code of the tests, the checked histories and the benchmarks: servers as
//! child processes that end with their owner, and a faulty network.
//!
//! - [`process`]: a program that can be killed, suspended and started again.
//! - [`ports`]: free ports.
//! - [`wait`]: polling with a deadline.
//! - [`extent`]: which tests `make test` skips.
//! - [`etcd`], [`redis`], [`sentinel`], [`redis_cluster`], [`leasehold`]: the servers.
//! - [`clock_shim`]: clocks of a process that can be set.
//! - [`lock_scripts`]: the scripts of lock libraries for Redis.
//! - [`proxy`]: network faults on demand.
//!
//! This crate must not depend on the package `leasehold`, whose tests use it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "what this crate cannot do fails the test that asked for it"
)]

pub mod clock_shim;
pub mod etcd;
pub mod extent;
pub mod leasehold;
pub mod lock_scripts;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod redis_cluster;
pub mod sentinel;
pub mod wait;
