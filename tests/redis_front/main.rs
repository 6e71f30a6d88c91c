//! The Redis front with clients of Redis: in process over memory, Redis and etcd, and as a
//! command.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "a test"
)]

use leasehold_testkit::lock_scripts as scripts;

mod client;
#[macro_use]
mod stage;
mod binary;

mod beside_apis;
mod browsers;
mod daprd;
mod drain;
mod fields;
mod gone_clients;
mod handshakes;
mod limits;
mod locks;
mod looks;

mod outages;
mod passwords;
mod protocol;
mod replies;
mod script_actions;
mod script_calls;
mod starting;
mod timeouts;
mod tls;
