//! `leasehold lock`: runs a command while a lock is held.
//!
//! `leasehold-supervise` has the supervisor and the stub. Here is what acquires, renews and
//! releases the lock, in a process of its own.

mod hold;
mod process;
mod reporter;
mod target;

use std::{env, ffi::OsString, io};

use clap::Parser as _;
use leasehold_supervise::{Job, LockOptions, LockProcess, StubArgs, become_command, supervise};
use leasehold_util::exit;

use super::{Cli, Command, StoreArgs};

/// The name of the hidden command that becomes the lock process.
const LOCK_PROCESS: &str = "lock-process";

/// The options of `lock`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold lock --store redis://10.0.0.5 nightly-backup -- ./backup.sh
      runs the backup on one machine at a time; the others wait
  leasehold lock -n -E 0 --store etcd://10.0.0.5:2379 cleanup -- ./cleanup.sh
      skips the run if another one has the lock

The command's environment has LEASEHOLD_FENCING_TOKEN, LEASEHOLD_RESOURCE and
LEASEHOLD_STORE_NAME.

Exit status: that of the command, or 128 + N if signal N has ended it; 75 if the lock was not
acquired; 79 if the command was ended because of the lock, or ran longer than the lock; 69 if the
store could not be reached; 77 for refused credentials; 64 for a wrong command line; 126 or 127 if
the command cannot be run; 70 for a defect of leasehold.")]
pub struct LockArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub options: LockOptions,

    /// A segment of the namespace, the outermost first; may be repeated
    #[arg(long, value_name = "SEGMENT")]
    pub namespace: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub store: StoreArgs,
}

/// What the processes of `lock` run, all of them before there are threads.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum LockCommand {
    /// Run a command while a lock is held, and end it before the lock ends
    Lock(Box<LockArgs>),
    /// Becomes the command of `lock`.
    #[command(hide = true)]
    LockStub(StubArgs),
    /// Holds the lock of `lock`.
    #[command(hide = true)]
    LockProcess {
        /// The command line of `lock`
        #[arg(last = true)]
        line: Vec<OsString>,
    },
}

/// Runs it. Returns the exit status. Must be called by the main thread.
#[must_use]
pub fn run(command: &LockCommand) -> u8 {
    match command {
        LockCommand::Lock(args) => {
            let start = [LOCK_PROCESS.into(), "--".into()];
            supervise(&Job {
                options: &args.options,
                // Its parameters concern nobody else.
                store: args.store.store.split('?').next().unwrap_or_default(),
                lock_process: start.into_iter().chain(env::args_os()).collect(),
            })
        }
        LockCommand::LockStub(args) => become_command(args),
        LockCommand::LockProcess { line } => match become_lock_process(line) {
            Ok(()) => 0,
            Err(_) => exit::DEFECT,
        },
    }
}

fn become_lock_process(line: &[OsString]) -> io::Result<()> {
    let process = LockProcess::take_over()?;
    let cli = Cli::try_parse_from(line).map_err(io::Error::other)?;
    let level = cli.log_level();
    match cli.command {
        Command::Lock(LockCommand::Lock(args)) => process::run(process, &args, level),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
