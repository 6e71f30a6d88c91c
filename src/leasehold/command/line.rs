//! The command line.

use std::{env, ffi::OsString, path::PathBuf};

use clap::{ArgAction, Parser, Subcommand, builder::BoolishValueParser};
use clap_complete::Shell;
use leasehold_component::SocketMode;
use leasehold_front::FrontArgs;
use leasehold_lock::Kind;
use leasehold_metrics::MetricsArgs;
use leasehold_sidecar::SidecarArgs;
use leasehold_tools::{force::ForceArgs, get::GetArgs, list::ListArgs, watch::WatchArgs};

use super::StoreArgs;
#[cfg(target_os = "linux")]
use super::lock::LockCommand;
use crate::{backend::KINDS, telemetry::LogLevel};

/// Distributed locks that people can trust: a lock store for Dapr over etcd,
/// Redis or memory.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// The least severity to log: by default info, or warn where a command ends by itself
    #[arg(long, global = true, value_enum, ignore_case = true)]
    pub log_level: Option<LogLevel>,

    /// Log JSON lines instead of text
    #[arg(long, global = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub log_as_json: bool,
}

impl Cli {
    /// Reads the process's command line.
    ///
    /// # Errors
    ///
    /// Contains the text to print: help, the version, or the problem.
    pub fn of_process() -> Result<Self, clap::Error> {
        Self::try_parse_from(with_double_dashes(env::args_os()))
    }

    /// The least severity to log.
    #[must_use]
    pub fn log_level(&self) -> LogLevel {
        self.log_level.unwrap_or(match self.command {
            Command::Tool(_) => LogLevel::Warn,
            #[cfg(target_os = "linux")]
            Command::Lock(_) => LogLevel::Warn,
            Command::Server(_) => LogLevel::Info,
        })
    }
}

/// Converts long flags of `sidecar` with one dash to two, because daprd accepts both. The
/// arguments of other commands stay as they are, also if one of them is `sidecar`.
fn with_double_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    let mut options = arguments.iter().skip(1);
    let command = loop {
        match options.next() {
            Some(option) if option == "--log-level" => drop(options.next()),
            Some(option) if option.as_encoded_bytes().starts_with(b"-") => {}
            command => break command,
        }
    };
    if command.is_none_or(|command| command != "sidecar") {
        return arguments;
    }
    let flags = options.count();
    let first = arguments.len() - flags;
    for argument in &mut arguments[first..] {
        let bytes = argument.as_encoded_bytes();
        if matches!(bytes, [b'-', letter, _, ..] if letter.is_ascii_lowercase()) {
            let mut long = OsString::from("-");
            long.push(&argument);
            *argument = long;
        }
    }
    arguments
}

/// What to do.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "clap would print it")]
pub enum Command {
    #[command(flatten)]
    Server(ServerCommand),
    #[command(flatten)]
    Tool(ToolCommand),
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    Lock(LockCommand),
}

/// The commands that serve until they are stopped.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Serve lock stores to daprd, or to any client of the component protocol, on Unix sockets
    Serve(ServeOptions),
    /// Speak the Dapr API to an app: its lock calls are served here, all others passed on
    Sidecar(Box<SidecarArgs>),
    /// Serve a lock store to clients of Redis: stock daprd's lock.redis, and lock libraries
    RedisFront(FrontArgs),
}

/// The commands that end by themselves.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// List what is held
    List(OnStore<ListArgs>),
    /// Show who holds a resource, and who waits for it
    Get(OnStore<GetArgs>),
    /// Print a line for each lock that is granted or ends
    Watch(OnStore<WatchArgs>),
    /// End the locks of others, after showing them
    ForceUnlock(OnStore<ForceArgs>),
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder; it is made if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Print the version
    Version,
}

/// The options of a command that works on a store.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit status: 0; 1 if the resource is free, or if nothing was ended; 64 for a wrong command line,
an unknown store, or what the store does not support; 69 if the store cannot be reached; 77 for
refused credentials; 70 for a defect of leasehold.")]
pub struct OnStore<A: clap::Args> {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub args: A,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub store: StoreArgs,
}

/// The options of `serve`.
///
/// Every store has its own socket: NAME.sock serves the component type
/// lock.NAME.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold serve
      all stores, on sockets in /tmp/dapr-components-sockets
  leasehold serve --store redis --resources-path ./my-components
      only lock.redis, its instances initialised from component YAML
  leasehold serve --store redis=leasehold-redis
      lock.leasehold-redis, beside daprd's built-in lock.redis

Environment:
  DAPR_COMPONENTS_SOCKETS_FOLDER, DAPR_COMPONENT_SOCKETS_FOLDER,
  DAPR_COMPONENT_SOCKET_FOLDER   the folder of the sockets

Exit status: 0 after a drained stop, 64 for a wrong command line or
configuration, 1 for anything else (a live socket in the way, for one).")]
pub struct ServeOptions {
    /// The folder of the sockets; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub socket_folder: Option<PathBuf>,

    /// Component YAML: instances to initialise without waiting for daprd; may be repeated
    #[arg(long, value_name = "DIR")]
    pub resources_path: Vec<PathBuf>,

    /// A store to serve, and the name of its socket; all stores by default, may be repeated
    #[arg(long, value_name = "STORE[=SOCKETNAME]", value_parser = StoreOption::parse)]
    pub store: Vec<StoreOption>,

    /// The permissions of the sockets; daprd needs write permission, so another user needs 0666
    #[arg(long, value_name = "MODE", default_value_t)]
    pub socket_mode: SocketMode,

    /// Metrics and probes.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

impl ServeOptions {
    /// The stores to serve: those named, or all.
    #[must_use]
    pub fn stores(&self) -> Vec<StoreOption> {
        if self.store.is_empty() {
            KINDS
                .built_in
                .iter()
                .map(|kind| StoreOption { kind: *kind, socket: kind.name.into() })
                .collect()
        } else {
            self.store.clone()
        }
    }
}

/// A store and the name of its socket.
#[derive(Clone, Debug)]
pub struct StoreOption {
    /// The backend.
    pub kind: Kind,
    /// The socket's name without `.sock`: `redis` serves the type `lock.redis`.
    pub socket: String,
}

impl StoreOption {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, socket) = text.split_once('=').unwrap_or((text, text));
        let Some(kind) = KINDS.named(name) else {
            let known: Vec<_> = KINDS.built_in.iter().map(|kind| kind.name).collect();
            let unknown =
                || format!("there is no store {name:?}; there are {}", known.join(", "));
            return Err(KINDS.left_out(name).unwrap_or_else(unknown));
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if socket.is_empty() || socket.starts_with('.') || !socket.chars().all(plain) {
            return Err(format!(
                "{socket:?} cannot be a socket's name; use letters, digits, - and _"
            ));
        }
        Ok(Self { kind, socket: socket.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecar_takes_flags_with_one_dash_as_daprd_does() {
        let given =
            ["leasehold", "sidecar", "-app-id", "a", "-app-max-concurrency", "-1", "-h"];
        let taken = with_double_dashes(given.map(OsString::from));
        let read =
            ["leasehold", "sidecar", "--app-id", "a", "--app-max-concurrency", "-1", "-h"];
        assert_eq!(taken, read.map(OsString::from));
    }

    /// A command that was run under a lock once got `--rf`.
    #[test]
    fn the_word_sidecar_changes_no_other_command() {
        for line in [
            &["leasehold", "get", "sidecar", "-rf"][..],
            &["leasehold", "--log-level", "sidecar", "get", "-rf"],
            &["leasehold", "--log-as-json", "list", "sidecar", "-long"],
            &["leasehold", "lock", "sidecar", "--", "rm", "-rf", "x"],
        ] {
            let given: Vec<_> = line.iter().map(OsString::from).collect();
            assert_eq!(with_double_dashes(given.clone()), given);
        }
        let given = ["leasehold", "--log-level", "debug", "sidecar", "-app-id", "a"];
        let taken = with_double_dashes(given.map(OsString::from));
        assert_eq!(taken[4], "--app-id");
    }

    #[test]
    fn the_log_level_of_daprd_is_taken() {
        for (text, level) in [("fatal", LogLevel::Error), ("DEBUG", LogLevel::Debug)] {
            let cli =
                Cli::try_parse_from(["leasehold", "sidecar", "--log-level", text]).unwrap();
            assert_eq!(cli.log_level(), level);
        }
    }
}
