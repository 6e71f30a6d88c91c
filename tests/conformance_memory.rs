//! The conformance suite on the memory store, over the real binary's socket.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

use std::process::ExitCode;

mod support;

use leasehold_testkit::leasehold::Leasehold;

fn main() -> ExitCode {
    let leasehold = Leasehold::serve("memory", &[]);
    let component = support::conformance::component("memory");
    let passed = support::conformance::run(component, leasehold, "memory", None, &[]);
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
