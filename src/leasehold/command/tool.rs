//! The commands that end by themselves.

use std::{
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
};

use clap::CommandFactory as _;
use leasehold_tools::{
    Locks, ToolError, force, get, list,
    names::NamespaceArgs,
    output::{Output, note},
    watch,
};
use leasehold_util::exit;
use tokio::runtime::Runtime;

use super::{
    Cli, StoreArgs,
    line::{OnStore, ToolCommand},
};

/// Runs a command to its end. Signals end the process, as they end other tools.
pub fn run(runtime: &Runtime, command: ToolCommand) -> ExitCode {
    // The panic was logged.
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(carry_out(command))));
    ExitCode::from(match ran {
        Ok(Ok(status)) => status,
        Ok(Err(error)) if error.exit == exit::CLOSED_PIPE => error.exit,
        Ok(Err(error)) => {
            note(&format!("leasehold: {error}"));
            error.exit
        }
        Err(_) => exit::DEFECT,
    })
}

async fn carry_out(command: ToolCommand) -> Result<u8, ToolError> {
    let mut output = Output::of_process();
    match command {
        ToolCommand::List(OnStore { args, store }) => {
            let locks = open(&store, &args.scope.names).await?;
            list::run(&*locks, &args, &mut output).await?;
            Ok(0)
        }
        ToolCommand::Get(OnStore { args, store }) => {
            let locks = open(&store, &args.names).await?;
            get::run(&*locks, &args, &mut output).await
        }
        ToolCommand::Watch(OnStore { args, store }) => {
            let locks = open(&store, &args.scope.names).await?;
            watch::run(&*locks, &args, &mut output).await?;
            Ok(0)
        }
        ToolCommand::ForceUnlock(OnStore { args, store }) => {
            let locks = open(&store, &args.names).await?;
            force::run(&*locks, &args).await
        }
        ToolCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
            output.bytes(&script)?;
            output.flush()?;
            Ok(0)
        }
        ToolCommand::Man { folder } => {
            manual(&folder)
                .map_err(|error| ToolError::usage(format!("{}: {error}", folder.display())))?;
            Ok(0)
        }
        ToolCommand::Version => {
            output.line(Cli::command().render_version().trim_end())?;
            output.flush()?;
            Ok(0)
        }
    }
}

/// Opens the store, in which these names must be possible.
async fn open(store: &StoreArgs, names: &NamespaceArgs) -> Result<Box<dyn Locks>, ToolError> {
    let opened = store.open().await?;
    opened.check_namespace(&names.namespace)?;
    Ok(opened.inspected())
}

/// Writes the manual pages: `leasehold.1`, `leasehold-list.1`, …
fn manual(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
