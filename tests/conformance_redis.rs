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

#[path = "support/monitor.rs"]
mod monitor;
mod support;

use leasehold_conformance::Feature;
use leasehold_testkit::{leasehold::Leasehold, redis::RedisServer};

use self::monitor::{Monitor, Seen};

fn main() -> ExitCode {
    let redis = RedisServer::start();
    let monitor = Monitor::start(&redis.address());
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
    drop(second);
    let Seen { commands, undeclared } = monitor.stop();
    println!("{commands} commands of functions, {} with an undeclared key", undeclared.len());
    for command in undeclared.iter().take(10) {
        println!("undeclared: {command}");
    }
    if passed && commands > 0 && undeclared.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
