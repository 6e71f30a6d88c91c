//! Logs: to stderr, for people on a terminal, as JSON on request.

use std::io::{self, IsTerminal as _};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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

/// Starts to log. No log line ever has a secret, a lock ID or a request ID in
/// it, which is why libraries are never asked for more than `info`: what they
/// tell beyond it is bytes of requests.
pub fn init(level: LogLevel, as_json: bool) {
    let filter = EnvFilter::from(level.directive());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // A second call (in tests) keeps the first.
    let _ = if as_json {
        log.json().flatten_event(true).try_init()
    } else {
        log.with_ansi(io::stderr().is_terminal()).with_target(false).try_init()
    };
}
