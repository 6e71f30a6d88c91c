//! `leasehold force-unlock`: ends the locks of others, and only those that were shown.

use std::io::{self, BufRead as _, IsTerminal as _};

use leasehold_proto::locks as pb;

use crate::{
    Locks, ToolError,
    error::EXIT_NOTHING,
    names::{NamespaceArgs, shown},
    output::note,
    text::{age, escaped, short},
};

/// How many grants are shown, and ended, at most.
const GRANTS_MAX: i32 = 1000;

/// The options of `force-unlock`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("of").required(true).args(["resource", "prefix"])))]
pub struct ForceArgs {
    /// The resource
    pub resource: Option<String>,

    /// All resources whose names begin so, in this namespace
    #[arg(long)]
    pub prefix: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub names: NamespaceArgs,

    /// Only this grant of the resource
    #[arg(
        long,
        value_name = "GRANT-ID",
        requires = "resource",
        default_value = "",
        hide_default_value = true
    )]
    pub grant: String,

    /// Why, for the log; USER@HOST by default
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Only show what would be ended
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// A grant that was shown.
struct Shown {
    namespace: Vec<String>,
    resource: String,
    grant: pb::GrantInfo,
}

impl Shown {
    fn line(&self) -> String {
        let Self { grant, .. } = self;
        let id = if grant.grant_id.is_empty() { "(foreign)" } else { &grant.grant_id };
        let age = age(grant.since.as_ref()).map(|age| format!(" for {}", short(age)));
        format!(
            "{}: held by {}{}, grant {id}",
            escaped(&shown(&self.namespace, &self.resource)),
            if grant.holder.is_empty() {
                "nobody named".into()
            } else {
                escaped(&grant.holder)
            },
            age.unwrap_or_default()
        )
    }
}

/// Ends grants. Returns the exit status: 1 if none was ended.
pub async fn run(locks: &dyn Locks, args: &ForceArgs) -> Result<u8, ToolError> {
    let reason = args.reason.clone().unwrap_or_else(user_at_host);
    let mut asked = args.request(reason.clone());
    asked.dry_run = true;
    let found = match locks.end(asked).await {
        Ok(found) => found,
        // It is free, or another grant holds it.
        Err(error) if error.is_not_held() => {
            note(&error.message);
            return Ok(EXIT_NOTHING);
        }
        Err(error) => return Err(error),
    };
    let grants = flattened(found.ended);
    if grants.is_empty() {
        note("nothing is held");
        return Ok(EXIT_NOTHING);
    }
    for grant in &grants {
        note(&grant.line());
    }
    if found.more {
        note(&format!("there are more; {} are ended at a time", grants.len()));
    }
    if args.dry_run {
        return Ok(0);
    }
    if !args.yes && !is_confirmed(grants.len())? {
        return Ok(EXIT_NOTHING);
    }
    let mut ended = 0;
    for grant in &grants {
        if end(locks, grant, &reason).await? {
            note(&format!("ended {}; reason: {}", grant.line(), escaped(&reason)));
            ended += 1;
        } else {
            note(&format!("no longer held: {}", grant.line()));
        }
    }
    Ok(if ended == 0 { EXIT_NOTHING } else { 0 })
}

impl ForceArgs {
    fn request(&self, reason: String) -> pb::EndLocksRequest {
        let scope = self.prefix.as_ref().map(|prefix| pb::LockScope {
            namespace: self.names.namespace.clone(),
            prefix: prefix.clone(),
            children: false,
        });
        pb::EndLocksRequest {
            all: scope.is_some(),
            scope,
            namespace: if self.resource.is_some() {
                self.names.namespace.clone()
            } else {
                Vec::new()
            },
            resource_id: self.resource.clone().unwrap_or_default(),
            grant_id: self.grant.clone(),
            limit: GRANTS_MAX,
            reason,
            ..Default::default()
        }
    }
}

/// Ends one grant. Returns whether it was held until then.
async fn end(locks: &dyn Locks, shown: &Shown, reason: &str) -> Result<bool, ToolError> {
    let asked = pb::EndLocksRequest {
        resource_id: shown.resource.clone(),
        namespace: shown.namespace.clone(),
        grant_id: shown.grant.grant_id.clone(),
        limit: GRANTS_MAX,
        reason: reason.to_owned(),
        ..Default::default()
    };
    match locks.end(asked).await {
        Ok(found) => Ok(!found.ended.is_empty()),
        Err(error) if error.is_not_held() => Ok(false),
        Err(error) => Err(error),
    }
}

fn flattened(locks: Vec<pb::LockState>) -> Vec<Shown> {
    let grants = locks.into_iter().flat_map(|lock| {
        let (namespace, resource) = (lock.namespace, lock.resource_id);
        lock.grants.into_iter().map(move |grant| Shown {
            namespace: namespace.clone(),
            resource: resource.clone(),
            grant,
        })
    });
    grants.collect()
}

/// Asks on the terminal.
fn is_confirmed(grants: usize) -> Result<bool, ToolError> {
    if !io::stdin().is_terminal() {
        return Err(ToolError::usage("nobody can answer here; --yes ends them without asking"));
    }
    note("Until its next renewal a holder does not know of it: two may run meanwhile.");
    note(&format!("End {grants}? [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn user_at_host() -> String {
    let user = std::env::var("USER")
        .unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}
