//! leasehold: distributed locks that people can trust.

use std::{process::ExitCode, time::Duration};

use leasehold_util::{descriptors, exit, signals::StopSignals};

#[cfg(target_os = "linux")]
use leasehold::command::lock;
use leasehold::{
    command::{Cli, Command, ServerCommand, StartError, redis_front, serve, sidecar, tool},
    runtime, telemetry,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

// Returns memory to the system after a million locks have ended: docs/performance.md has
// figures. The system's allocator was not compared.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long the end of the process waits for a name look-up or the reading of a file, which
/// nothing can cancel.
const BLOCKED_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    leasehold_lock::count_suspensions();
    let cli = match Cli::of_process() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    // Before there are threads.
    #[cfg(target_os = "linux")]
    if let Command::Lock(lock) = &cli.command {
        #[cfg(feature = "jemalloc")]
        let _ = tikv_jemalloc_ctl::background_thread::write(false);
        return ExitCode::from(lock::run(lock));
    }
    // The last lines are written when this is dropped, at the end of this function.
    let _logs = match telemetry::init(cli.log_level(), cli.log_as_json) {
        Ok(logs) => logs,
        Err(error) => {
            eprintln!("cannot start the log's thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = descriptors::raise_limit() {
        warn!(%error, "the limit of open files could not be raised");
    }
    match runtime::on_half_of_the_cores() {
        Ok(runtime) => {
            let exit = match cli.command {
                Command::Tool(tool) => tool::run(&runtime, tool),
                Command::Server(server) => runtime.block_on(run(server)),
                // It has returned.
                #[cfg(target_os = "linux")]
                Command::Lock(_) => ExitCode::FAILURE,
            };
            runtime.shutdown_timeout(BLOCKED_MAX);
            exit
        }
        Err(error) => {
            error!(%error, "no runtime");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: ServerCommand) -> ExitCode {
    let mut stop = match StopSignals::listen() {
        Ok(stop) => stop,
        Err(error) => {
            error!(%error, "cannot listen for signals");
            return ExitCode::FAILURE;
        }
    };
    match command {
        ServerCommand::Serve(options) => match serve::start(&options).await {
            Ok(serving) => until_drained(stop, |stopping| serving.run(stopping)).await,
            Err(error) => cannot_start(&error),
        },
        ServerCommand::Sidecar(args) => {
            let started = tokio::select! {
                started = sidecar::start(&args) => started,
                // Before it listens, there is nothing to drain.
                () = stop.next() => {
                    info!("stopped before it began to serve");
                    return ExitCode::SUCCESS;
                }
            };
            match started {
                Ok(serving) => until_drained(stop, |stopping| serving.run(stopping)).await,
                Err(error) => cannot_start(&error),
            }
        }
        ServerCommand::RedisFront(args) => match redis_front::start(&args).await {
            Ok(serving) => until_drained(stop, |stopping| serving.run(stopping)).await,
            Err(error) => cannot_start(&error),
        },
    }
}

/// Serves until the first signal, then until the drain has ended or the second signal.
async fn until_drained<F: Future<Output = ()>>(
    mut stop: StopSignals,
    serve: impl FnOnce(CancellationToken) -> F,
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

fn cannot_start(error: &StartError) -> ExitCode {
    match error {
        StartError::Configuration(_) => {
            error!(%error, "wrong configuration");
            ExitCode::from(exit::USAGE)
        }
        StartError::Unavailable(_) => {
            error!(%error, "cannot serve");
            ExitCode::FAILURE
        }
    }
}
