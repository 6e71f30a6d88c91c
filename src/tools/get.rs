//! `leasehold get`: who holds one resource, and who waits for it.

use std::time::Duration;

use leasehold_net::inspection::json;
use leasehold_proto::locks as pb;
use leasehold_util::exit;

use crate::{
    Locks, ToolError,
    names::NamespaceArgs,
    output::Output,
    table::Table,
    text::{age, escaped, short},
};

/// The waiters of a page.
const PAGE_SIZE: i32 = 1000;

/// The form of one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GetForm {
    /// Columns for people
    #[default]
    Table,
    /// The API's object
    Json,
}

/// The options of `get`.
#[derive(Clone, Debug, clap::Args)]
pub struct GetArgs {
    /// The resource
    #[arg(value_parser = crate::names::not_empty)]
    pub resource: String,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub names: NamespaceArgs,

    /// Also who waits, in the order of the queue
    #[arg(long)]
    pub waiters: bool,

    /// The form
    #[arg(short, long, value_enum, default_value_t)]
    pub output: GetForm,
}

/// Prints who holds the resource. Returns the exit status: 1 if it is free.
pub async fn run(
    locks: &dyn Locks,
    args: &GetArgs,
    output: &mut Output,
) -> Result<u8, ToolError> {
    let found = grants(locks, args).await?;
    let waiters = if args.waiters { waiters(locks, args).await? } else { Vec::new() };
    let is_free = found.lock.as_ref().is_none_or(|lock| lock.grants.is_empty());
    match args.output {
        GetForm::Json => {
            let mut value = json::of_lock(&found);
            if args.waiters {
                value["queue"] = waiters.iter().map(json::of_waiter).collect();
            }
            output.line(&value.to_string())?;
        }
        GetForm::Table => print(&found, &waiters, output)?,
    }
    output.flush()?;
    Ok(if is_free { exit::NOTHING } else { 0 })
}

/// The lock with all of its grants.
async fn grants(locks: &dyn Locks, args: &GetArgs) -> Result<pb::GetLockResponse, ToolError> {
    let mut asked = pb::GetLockRequest {
        resource_id: args.resource.clone(),
        namespace: args.names.namespace.clone(),
        page_size: PAGE_SIZE,
        ..Default::default()
    };
    let mut found = locks.get(asked.clone()).await?;
    while !found.next_page_token.is_empty() {
        asked.page_token = std::mem::take(&mut found.next_page_token);
        let more = locks.get(asked.clone()).await?;
        let (Some(lock), Some(others)) = (&mut found.lock, more.lock) else { break };
        lock.grants.extend(others.grants);
        found.next_page_token = more.next_page_token;
    }
    Ok(found)
}

async fn waiters(locks: &dyn Locks, args: &GetArgs) -> Result<Vec<pb::WaiterInfo>, ToolError> {
    let mut asked = pb::ListWaitersRequest {
        resource_id: args.resource.clone(),
        namespace: args.names.namespace.clone(),
        page_size: PAGE_SIZE,
        ..Default::default()
    };
    let mut waiters = Vec::new();
    loop {
        let page = locks.waiters(asked.clone()).await?;
        waiters.extend(page.waiters);
        if page.next_page_token.is_empty() {
            return Ok(waiters);
        }
        asked.page_token = page.next_page_token;
    }
}

fn print(
    found: &pb::GetLockResponse,
    waiters: &[pb::WaiterInfo],
    output: &mut Output,
) -> Result<(), ToolError> {
    let grants = found.lock.as_ref().map(|lock| &*lock.grants).unwrap_or_default();
    if grants.is_empty() {
        output.line(&format!("free, {} waiting", found.waiters))?;
    } else {
        let mut table = Table::new(&["MODE", "HOLDER", "AGE", "LEFT", "WAITING", "GRANT-ID"]);
        for grant in grants {
            let left = grant.remaining.and_then(|left| Duration::try_from(left).ok());
            let id = if grant.grant_id.is_empty() { "none" } else { &grant.grant_id };
            table.row(vec![
                json::mode(grant.mode()).to_owned(),
                escaped(&grant.holder),
                age(grant.since.as_ref()).map(short).unwrap_or_default(),
                left.map(short).unwrap_or_default(),
                found.waiters.to_string(),
                id.to_owned(),
            ]);
        }
        table.print(output)?;
    }
    if !waiters.is_empty() {
        output.line("")?;
        let mut table = Table::new(&["POSITION", "MODE", "HOLDER", "WAITED"]);
        for waiter in waiters {
            table.row(vec![
                waiter.position.to_string(),
                json::mode(waiter.mode()).to_owned(),
                escaped(&waiter.holder),
                age(waiter.since.as_ref()).map(short).unwrap_or_default(),
            ]);
        }
        table.print(output)?;
    }
    Ok(())
}
