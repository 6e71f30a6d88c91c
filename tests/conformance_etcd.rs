//! The conformance suite on real etcds, 3.4 and 3.6, over the sockets of two
//! processes that share one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "a test")]

use std::process::ExitCode;

mod support;

use leasehold_testkit::{
    etcd::{EtcdServer, Version},
    leasehold::Leasehold,
};

fn main() -> ExitCode {
    let passed = [Version::V34, Version::V36].map(passes);
    if passed == [true, true] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether every case passed. A version that cannot be run is ignored, but not in CI.
fn passes(version: Version) -> bool {
    if let Some(why) = version.left_out() {
        println!("{}: ignored: {why}", version.name());
        return true;
    }
    if let Err(why) = version.program() {
        println!("{}: ignored: {why}", version.name());
        return std::env::var_os("CI").is_none();
    }
    println!("\n{}:", version.name());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(EtcdServer::start(version));
    let (first, second) = (Leasehold::serve("etcd", &[]), Leasehold::serve("etcd", &[]));
    let mut component = support::conformance::component("etcd");
    component.properties.insert("endpoints".to_owned(), server.url.clone());
    let other = Some(second.socket("etcd"));
    let passed = support::conformance::run(component, first, "etcd", other, &[]);
    drop((second, server));
    passed
}
