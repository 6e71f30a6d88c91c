//! Logs to stderr: as text, or as JSON lines.

mod queue;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal as _},
    time::Duration,
};

use clap::ValueEnum;
use tracing::error;
use tracing_subscriber::EnvFilter;

use self::queue::LogQueue;

pub use self::queue::lines_dropped;

/// How long the process waits at its end for the last lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// The least severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Everything, each call included.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What may need attention.
    Warn,
    /// What has failed.
    #[value(alias = "fatal")]
    Error,
}

impl LogLevel {
    fn directive(self) -> &'static str {
        match self {
            Self::Debug => "leasehold=debug,info",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The log. Its last lines are written when this is dropped, if stderr is read
/// within a moment.
#[derive(Debug)]
pub struct Logs(LogQueue);

impl Drop for Logs {
    fn drop(&mut self) {
        self.0.flush(FLUSH_WITHIN);
    }
}

/// Starts to log, without ever waiting for a reader of stderr. No log line may
/// contain a secret, a lock ID or a request ID, so libraries log at `info` at
/// most: below that, they log bytes of requests. Fails if no thread can be
/// started.
pub fn init(level: LogLevel, as_json: bool) -> io::Result<Logs> {
    let queue = LogQueue::start(io::stderr())?;
    let writer = queue.clone();
    let filter = EnvFilter::from(level.directive());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || writer.clone());
    // After a second call (in tests) the first subscriber stays.
    let _ = if as_json {
        log.json().flatten_event(true).try_init()
    } else {
        log.with_ansi(io::stderr().is_terminal()).with_target(false).try_init()
    };
    log_panics();
    Ok(Logs(queue))
}

/// Starts to log for another process, which shows the lines: without time and colours. `writer`
/// must not wait for a reader.
pub fn init_lines<W>(level: LogLevel, writer: impl Fn() -> W + Send + Sync + 'static)
where
    W: io::Write + 'static,
{
    let filter = EnvFilter::from(level.directive());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let _ = log.with_ansi(false).with_target(false).without_time().try_init();
    log_panics();
}

fn log_panics() {
    // The default hook writes to stderr directly, and waits for its reader.
    std::panic::set_hook(Box::new(|panic| {
        let panic = panic.to_string().replace('\n', " ");
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            error!(%backtrace, "{panic}");
        } else {
            error!("{panic}");
        }
    }));
}
