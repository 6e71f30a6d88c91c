//! leasehold: distributed locks that people can trust.

use std::{fmt::Display, process::ExitCode};

use leasehold::{
    cli::{Cli, Command},
    runtime,
    serve::{self, StartError},
    sidecar,
    signals::StopSignals,
    telemetry,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

// Gives memory back when a million locks are gone: docs/performance.md tells how
// much. The system's allocator was not measured beside it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A wrong command line or configuration (`EX_USAGE`).
const EXIT_CONFIGURATION: u8 = 64;

fn main() -> ExitCode {
    let cli = match Cli::of_process() {
        Ok(cli) => cli,
        Err(told) => {
            let _ = told.print();
            return ExitCode::from(if told.use_stderr() { EXIT_CONFIGURATION } else { 0 });
        }
    };
    // Written to its end when this function returns, whatever it returns.
    let _logs = match telemetry::init(cli.log_level, cli.log_as_json) {
        Ok(logs) => logs,
        Err(error) => {
            eprintln!("cannot start the log's thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match runtime::on_half_of_the_cores() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(run(cli.command))
}

async fn run(command: Command) -> ExitCode {
    let mut stop = match StopSignals::listen() {
        Ok(stop) => stop,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return ExitCode::FAILURE;
        }
    };
    match command {
        Command::Serve(options) => match serve::start(&options).await {
            Ok(serving) => {
                until_drained(stop, async move |stopping: CancellationToken| {
                    stopping.cancelled().await;
                    serving.drain().await;
                })
                .await
            }
            Err(error @ StartError::Configuration(_)) => wrong_configuration(&error),
            Err(error) => cannot_serve(&error),
        },
        Command::Sidecar(args) => {
            let started = tokio::select! {
                started = sidecar::command::start(&args) => started,
                // Until it listens there is nothing to drain.
                () = stop.next() => {
                    info!("stopped before it began to serve");
                    return ExitCode::SUCCESS;
                }
            };
            match started {
                Ok(serving) => {
                    until_drained(stop, async move |stopping| serving.run(stopping).await).await
                }
                Err(error @ sidecar::command::StartError::Configuration(_)) => {
                    wrong_configuration(&error)
                }
                Err(error) => cannot_serve(&error),
            }
        }
    }
}

/// Serves until the first signal, then until the drain has ended or the second.
async fn until_drained(
    mut stop: StopSignals,
    serve: impl AsyncFnOnce(CancellationToken),
) -> ExitCode {
    let stopping = CancellationToken::new();
    let signals = async {
        stop.next().await;
        info!("draining; a second signal ends the process at once");
        stopping.cancel();
        stop.next().await;
    };
    tokio::select! {
        () = serve(stopping.clone()) => ExitCode::SUCCESS,
        () = signals => ExitCode::FAILURE,
    }
}

fn wrong_configuration(error: &dyn Display) -> ExitCode {
    error!(%error, "wrong configuration");
    ExitCode::from(EXIT_CONFIGURATION)
}

fn cannot_serve(error: &dyn Display) -> ExitCode {
    error!(%error, "cannot serve");
    ExitCode::FAILURE
}
