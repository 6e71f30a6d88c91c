//! `leasehold-reliability`: checked histories under faults.

use clap::Parser as _;
use leasehold_reliability::command::Command;

#[tokio::main]
async fn main() {
    let code = match Command::parse().carry_out().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            2
        }
    };
    // Not by returning, because a thread may still read standard input.
    std::process::exit(code);
}
