//! The conformance suite on a Redis Cluster of three masters with a replica each, over the sockets
//! of two processes that share it.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "a test")]

use std::process::ExitCode;

mod support;

use leasehold_conformance::Feature;
use leasehold_testkit::{leasehold::Leasehold, redis_cluster::RedisCluster};

fn main() -> ExitCode {
    let cluster = RedisCluster::start(3, 1);
    let (first, second) = (Leasehold::serve("redis", &[]), Leasehold::serve("redis", &[]));
    let mut component = support::conformance::component("redis-cluster");
    component.properties.insert("redisHost".to_owned(), cluster.list());
    let passed = support::conformance::run(
        component,
        first,
        "redis",
        Some(second.socket("redis")),
        // Replication is asynchronous. The ends of shared locks are times of one server's clock.
        &[Feature::Linearizable, Feature::Shared],
    );
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
