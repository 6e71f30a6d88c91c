//! `leasehold list`: what is held.

use std::time::Duration;

use leasehold_net::inspection::json;
use leasehold_proto::locks as pb;
use leasehold_util::duration::parse_go_duration;
use serde_json::Value;

use crate::{
    Locks, ToolError,
    locks::Pages,
    names::{ScopeArgs, shown},
    output::{Output, note},
    table::Table,
    text::{age, escaped, short},
};

/// How many locks are looked at one by one.
const DETAILS_MAX: usize = 100;

/// The form of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ListForm {
    /// Columns for people
    #[default]
    Table,
    /// The same with namespaces and grant IDs
    Wide,
    /// One array of the API's objects
    Json,
    /// An object a line
    Ndjson,
    /// Names, a line each
    Name,
}

/// The options of `list`.
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub scope: ScopeArgs,

    /// Only grants of holders that begin so
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub holder: String,

    /// Only locks that are held for at least this long, as 30s or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub older_than: Option<Duration>,

    /// Also what is left of the TTL, and how many wait: a call for each lock, for 100 at most
    #[arg(long)]
    pub details: bool,

    /// The form
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ListForm,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_go_duration(text)
        .ok_or_else(|| "is not a duration; write for example 30s, 1m30s or 500ms".to_owned())
}

/// Prints what is held.
pub async fn run(
    locks: &dyn Locks,
    args: &ListArgs,
    output: &mut Output,
) -> Result<(), ToolError> {
    let mut pages = Pages::new(locks, args.scope.to_scope(), args.holder.clone());
    let mut list = List::new(args);
    while let Some(mut state) = pages.next().await? {
        if args.older_than.is_some_and(|least| !is_older(&state, least)) {
            continue;
        }
        let waiters = list.look_at(locks, &mut state).await?;
        list.add(&state, waiters, output)?;
    }
    list.end(output)
}

/// Whether one of its grants is held for at least this long.
fn is_older(state: &pb::LockState, least: Duration) -> bool {
    state.grants.iter().any(|grant| age(grant.since.as_ref()).is_some_and(|age| age >= least))
}

/// A list that is being printed.
struct List<'a> {
    args: &'a ListArgs,
    table: Table,
    looked_at: usize,
    printed: usize,
}

impl<'a> List<'a> {
    fn new(args: &'a ListArgs) -> Self {
        let mut headings = vec!["RESOURCE", "MODE", "HOLDER", "AGE"];
        if args.output == ListForm::Wide {
            headings.insert(0, "NAMESPACE");
            headings.push("GRANT-ID");
        }
        if args.details {
            headings.extend(["LEFT", "WAITING"]);
        }
        Self { args, table: Table::new(&headings), looked_at: 0, printed: 0 }
    }

    /// Asks for the details of a lock, if they are wanted. Returns the number of its waiters, if
    /// that is known.
    async fn look_at(
        &mut self,
        locks: &dyn Locks,
        state: &mut pb::LockState,
    ) -> Result<Option<i32>, ToolError> {
        if !self.args.details || self.looked_at > DETAILS_MAX {
            return Ok(None);
        }
        self.looked_at += 1;
        if self.looked_at > DETAILS_MAX {
            note(&format!("details are shown for the first {DETAILS_MAX} locks only"));
            return Ok(None);
        }
        let asked = pb::GetLockRequest {
            resource_id: state.resource_id.clone(),
            namespace: state.namespace.clone(),
            ..Default::default()
        };
        let found = locks.get(asked).await?;
        // What was listed stays, because it is what the filters were applied to.
        let grants = found.lock.map(|lock| lock.grants).unwrap_or_default();
        for listed in &mut state.grants {
            let same = grants.iter().find(|grant| grant.grant_id == listed.grant_id);
            listed.remaining = same.and_then(|grant| grant.remaining);
        }
        Ok(Some(found.waiters))
    }

    fn add(
        &mut self,
        lock: &pb::LockState,
        waiters: Option<i32>,
        output: &mut Output,
    ) -> Result<(), ToolError> {
        match self.args.output {
            ListForm::Table | ListForm::Wide => self.table.row(self.cells(lock, waiters)),
            ListForm::Name => {
                let name = shown(&lock.namespace, &lock.resource_id);
                let name = if output.is_terminal() { escaped(&name) } else { name };
                output.line(&name)?;
            }
            ListForm::Ndjson => output.line(&json(lock, waiters).to_string())?,
            ListForm::Json => {
                let begin = if self.printed == 0 { "[" } else { "," };
                output.line(&format!("{begin}{}", json(lock, waiters)))?;
            }
        }
        self.printed += 1;
        Ok(())
    }

    fn end(mut self, output: &mut Output) -> Result<(), ToolError> {
        match self.args.output {
            ListForm::Table | ListForm::Wide => {
                self.table.sort();
                self.table.print(output)?;
            }
            ListForm::Json if self.printed == 0 => output.line("[]")?,
            ListForm::Json => output.line("]")?,
            ListForm::Name | ListForm::Ndjson => {}
        }
        Ok(output.flush()?)
    }

    fn cells(&self, lock: &pb::LockState, waiters: Option<i32>) -> Vec<String> {
        let first = lock.grants.first();
        let (is_wide, text) = (self.args.output == ListForm::Wide, |text: &str| escaped(text));
        let mut holder = text(first.map_or("", |grant| &grant.holder));
        if lock.grants_total > 1 {
            holder = format!("{holder} +{}", lock.grants_total - 1).trim_start().to_owned();
        }
        let name = if is_wide {
            text(&lock.resource_id)
        } else {
            text(&shown(&lock.namespace, &lock.resource_id))
        };
        let age = first.and_then(|grant| age(grant.since.as_ref()));
        let mode = first.map_or("", |grant| json::mode(grant.mode()));
        let mut cells = vec![name, mode.to_owned(), holder, age.map(short).unwrap_or_default()];
        if is_wide {
            cells.insert(0, text(&lock.namespace.join("/")));
            cells.push(first.map(|grant| grant.grant_id.clone()).unwrap_or_default());
        }
        if self.args.details {
            let left = first.and_then(|grant| grant.remaining);
            let left = left.and_then(|left| Duration::try_from(left).ok());
            cells.push(left.map(short).unwrap_or_default());
            cells.push(waiters.map(|waiters| waiters.to_string()).unwrap_or_default());
        }
        cells
    }
}

/// The API's object; with the number of waiters if that is known.
fn json(lock: &pb::LockState, waiters: Option<i32>) -> Value {
    let mut value = json::of_state(lock);
    if let Some(waiters) = waiters {
        value["waiters"] = waiters.into();
    }
    value
}
