//! The conformance suite on a real Redis, over the sockets of two processes
//! that share it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

mod support;

use leasehold_conformance::Feature;
use leasehold_testkit::{leasehold::Leasehold, redis::RedisServer};

fn main() -> ExitCode {
    let redis = RedisServer::start();
    let (first, second) = (Leasehold::serve("redis", &[]), Leasehold::serve("redis", &[]));
    let mut component = support::conformance::component("redis");
    component.properties.insert("redisHost".to_owned(), redis.address());
    let passed = support::conformance::run(
        component,
        first,
        "redis",
        Some(second.socket("redis")),
        // Replication is asynchronous: a failover may lose what was answered.
        &[Feature::Linearizable],
    );
    drop((second, redis));
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
