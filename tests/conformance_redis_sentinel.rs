//! The conformance suite on a Redis master that Sentinels name, over the sockets of two processes
//! that share it.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "a test")]

use std::process::ExitCode;

mod support;

use leasehold_conformance::Feature;
use leasehold_testkit::{
    leasehold::Leasehold,
    sentinel::{MASTER_NAME, Sentinels, master, replica_of},
};

fn main() -> ExitCode {
    let arguments = ["--min-replicas-to-write", "1"];
    let master = master(&arguments);
    let _replicas = [(); 2].map(|()| replica_of(&master.address(), &arguments));
    let sentinels = Sentinels::watch(&master.address(), 3, 2, &[]);
    let (first, second) = (Leasehold::serve("redis", &[]), Leasehold::serve("redis", &[]));
    let mut component = support::conformance::component("redis-sentinel");
    component.properties.insert("redisHost".to_owned(), sentinels.list());
    component.properties.insert("sentinelMasterName".to_owned(), MASTER_NAME.to_owned());
    let passed = support::conformance::run(
        component,
        first,
        "redis",
        Some(second.socket("redis")),
        // Replication is asynchronous: a failover may lose what was answered.
        &[Feature::Linearizable],
    );
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
