//! leasehold: distributed locks that people can trust.

use std::process::ExitCode;

use clap::Parser as _;
use leasehold::{
    cli::{Cli, Command},
    serve::{self, StartError},
    signals::StopSignals,
    telemetry,
};
use tracing::{error, info};

// Gives memory back after a million locks are gone, which the system's
// allocator does not: docs/performance.md has both.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A wrong command line or configuration (`EX_USAGE`).
const EXIT_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            let _ = told.print();
            return ExitCode::from(if told.use_stderr() { EXIT_CONFIGURATION } else { 0 });
        }
    };
    telemetry::init(cli.log_level, cli.log_as_json);
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(run(cli.command))
}

async fn run(command: Command) -> ExitCode {
    let Command::Serve(options) = command;
    let mut stop = match StopSignals::listen() {
        Ok(stop) => stop,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return ExitCode::FAILURE;
        }
    };
    let serving = match serve::start(&options).await {
        Ok(serving) => serving,
        Err(error @ StartError::Configuration(_)) => {
            error!(%error, "wrong configuration");
            return ExitCode::from(EXIT_CONFIGURATION);
        }
        Err(error) => {
            error!(%error, "cannot serve");
            return ExitCode::FAILURE;
        }
    };

    stop.next().await;
    info!("draining; a second signal ends the process at once");
    tokio::select! {
        drained = serving.drain() => match drained {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                error!(%error, "the drain failed");
                ExitCode::FAILURE
            }
        },
        () = stop.next() => ExitCode::FAILURE,
    }
}
