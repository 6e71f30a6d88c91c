//! `leasehold-conformance`: checks a lock store against the alpha2 protocol.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;
use leasehold_conformance::{
    CaseInfo, Component, Demand, Options, Outcome, Recorder, Restart, Suite, catalogue, summary,
};
use libtest_mimic::{Arguments, ColorSetting, FormatSetting, Trial};

/// A wrong command line or component YAML.
const EXIT_USAGE: u8 = 64;
/// The store could not be tested.
const EXIT_UNTESTED: u8 = 1;
/// At least one case failed.
const EXIT_FAILED: u8 = 101;

/// Checks a lock store on a Unix socket against the alpha2 lock protocol.
///
/// The run locks only resources of its own, whose names begin with
/// `conformance-`, and ends what it started. Exit codes: 0 when no case
/// failed, 101 when one did, 64 for a wrong command line or component YAML, 1
/// when the store could not be reached or initialised.
#[derive(Parser, Debug)]
#[command(version)]
struct Cli {
    /// The store's Unix socket.
    #[arg(long, value_name = "PATH", required_unless_present = "list")]
    socket: Option<PathBuf>,
    /// The component YAML whose properties Init gets.
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    resource: Option<PathBuf>,
    /// The socket of a second process on the same backend; adds the cases across processes.
    #[arg(long, value_name = "PATH")]
    second_socket: Option<PathBuf>,
    /// A shell command that restarts the store; adds the cases across a restart.
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// The instance to use instead of the YAML's metadata.name.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Run only cases whose `[demand] theme: sentence` contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Leave out cases that contain this. May be repeated.
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Let --filter and --skip match whole names only.
    #[arg(long)]
    exact: bool,
    /// List the cases and stop; needs no store.
    #[arg(long)]
    list: bool,
    /// How many cases run at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    threads: usize,
    /// Write a JUnit report to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Fail also if a case was ignored, for a store that declares every feature.
    #[arg(long)]
    deny_ignored: bool,
    /// How to print the outcomes.
    #[arg(long, value_enum)]
    format: Option<FormatSetting>,
    /// Whether to use colours.
    #[arg(long, value_enum)]
    color: Option<ColorSetting>,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // A failure to print cannot be reported.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err((code, error)) => {
            eprintln!("leasehold-conformance: {error:#}");
            ExitCode::from(code)
        }
    }
}

fn run(cli: Cli) -> Result<u8, (u8, anyhow::Error)> {
    let arguments = cli.arguments();
    let (Some(socket), Some(resource), false) = (cli.socket, cli.resource, cli.list) else {
        let _ = libtest_mimic::run(&arguments, listed());
        return Ok(0);
    };
    let component = Component::read(&resource).map_err(|error| (EXIT_USAGE, error))?;
    let options = Options {
        socket,
        second_socket: cli.second_socket,
        restart: cli.restart.map(Restart::command),
        component,
        instance: cli.instance,
        threads: cli.threads,
        only: None,
    };
    let untested = |error| (EXIT_UNTESTED, error);
    let suite = Suite::connect(&options).map_err(untested)?;
    if options.second_socket.is_none() {
        left_out("two processes", "--second-socket", |demand| {
            matches!(demand, Demand::TwoProcesses(_))
        });
    }
    if options.restart.is_none() {
        left_out("a restart", "--restart", |demand| matches!(demand, Demand::Restart(_)));
    }
    let conclusion = libtest_mimic::run(&arguments, suite.trials());
    if let Some(file) = cli.junit {
        write_junit(&suite, &file).map_err(untested)?;
    }
    eprint!("{}", summary(&suite.recorder().reports()));
    if let Some(why) = suite.stopped() {
        eprintln!("not run to its end: {why}");
        return Ok(EXIT_FAILED);
    }
    let ignored = ignored_count(&suite.recorder());
    if cli.deny_ignored && ignored > 0 {
        eprintln!("{ignored} cases were ignored, which --deny-ignored forbids");
        return Ok(EXIT_FAILED);
    }
    Ok(if conclusion.has_failed() { EXIT_FAILED } else { 0 })
}

impl Cli {
    fn arguments(&self) -> Arguments {
        Arguments {
            filter: self.filter.clone(),
            skip: self.skip.clone(),
            exact: self.exact,
            list: self.list,
            test_threads: Some(self.threads.max(1)),
            format: self.format,
            color: self.color,
            ..Arguments::default()
        }
    }
}

/// Reports how many cases the run leaves out for want of an option.
fn left_out(what: &str, option: &str, is_left_out: impl Fn(&Demand) -> bool) {
    let count = catalogue().iter().filter(|case| is_left_out(&case.demand)).count();
    eprintln!("cases across {what} that are left out: {count}; no {option} was given");
}

/// The catalogue as trials that do nothing, to be listed.
fn listed() -> Vec<Trial> {
    let named =
        |case: CaseInfo| Trial::test(case.name, || Ok(())).with_kind(case.demand.to_string());
    catalogue().into_iter().map(named).collect()
}

fn ignored_count(recorder: &Recorder) -> usize {
    let is_ignored = |outcome: &Outcome| matches!(outcome, Outcome::Ignored(_));
    recorder.reports().iter().filter(|report| is_ignored(&report.outcome)).count()
}

fn write_junit(suite: &Suite, file: &std::path::Path) -> anyhow::Result<()> {
    let xml = suite.junit()?;
    std::fs::write(file, xml).with_context(|| format!("cannot write {}", file.display()))
}
