//! `leasehold force-unlock`: ends the locks of others, and only those that were shown.

use std::{
    collections::{BTreeSet, HashSet},
    env,
    io::{self, BufRead as _, IsTerminal as _},
};

use futures_util::{StreamExt as _, stream};
use leasehold_lock::{LockError, check_text};
use leasehold_proto::locks as pb;
use leasehold_util::exit;

use crate::{
    Locks, ToolError,
    locks::Pages,
    names::{NamespaceArgs, shown},
    output::note,
    text::{age, escaped, short},
};

/// How many grants are shown, and ended, at most.
const GRANTS_MAX: u16 = 1000;
/// How many are ended at the same time.
const AT_A_TIME: usize = 16;
/// The longest reason in bytes, as the API has it.
const REASON_BYTES_MAX: usize = 256;

/// The options of `force-unlock`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("of").required(true).args(["resource", "prefix"])))]
pub struct ForceArgs {
    /// The resource
    #[arg(value_parser = crate::names::not_empty)]
    pub resource: Option<String>,

    /// All resources whose names begin so, in this namespace
    #[arg(long, value_parser = crate::names::not_empty)]
    pub prefix: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would print it")]
    pub names: NamespaceArgs,

    /// Only this grant of the resource
    #[arg(long, value_name = "GRANT-ID", requires = "resource", conflicts_with = "prefix",
          value_parser = crate::names::not_empty)]
    pub grant: Option<String>,

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

/// A resource with the grants that were shown of it.
type Resource = (Vec<String>, String);

/// A grant that was shown.
struct Shown {
    of: Resource,
    grant: pb::GrantInfo,
}

impl Shown {
    /// Whether it has no ID, so that only its name can be given to the store.
    fn has_no_id(&self) -> bool {
        self.grant.grant_id.is_empty()
    }

    fn line(&self) -> String {
        let Self { of: (namespace, resource), grant } = self;
        let name = escaped(&shown(namespace, resource));
        let holder = match (grant.holder.as_str(), self.has_no_id()) {
            ("", true) => "held, not by leasehold".to_owned(),
            ("", false) => "held without a holder's name".to_owned(),
            (holder, _) => format!("held by {}", escaped(holder)),
        };
        let age = age(grant.since.as_ref()).map(|age| format!(" for {}", short(age)));
        let id = if self.has_no_id() { "without an ID" } else { &grant.grant_id };
        format!("{name}: {holder}{}, grant {id}", age.unwrap_or_default())
    }
}

/// Ends grants. Returns the exit status: 1 if none was ended.
pub async fn run(locks: &dyn Locks, args: &ForceArgs) -> Result<u8, ToolError> {
    let reason = args.reason.clone().unwrap_or_else(user_at_host);
    check_text("--reason", &reason, REASON_BYTES_MAX).map_err(LockError::from)?;
    let found = match &args.resource {
        Some(resource) => find_one(locks, args, resource, &reason).await,
        None => find_all(locks, args).await,
    };
    let Found { grants, more } = match found {
        Ok(found) => found,
        // It is free, or another grant holds it.
        Err(error) if error.is_not_held() => {
            note(&error.message);
            return Ok(exit::NOTHING);
        }
        Err(error) => return Err(error),
    };
    if grants.is_empty() {
        note("nothing is held");
        return Ok(exit::NOTHING);
    }
    for grant in &grants {
        note(&grant.line());
    }
    let note_more =
        || note(&format!("There are more: at most {} are ended at a time.", grants.len()));
    if more {
        note_more();
    }
    if args.dry_run {
        return Ok(0);
    }
    if !args.yes && !is_confirmed(grants.len())? {
        note("Nothing was ended.");
        return Ok(exit::NOTHING);
    }
    let ended = end_all(locks, &grants, &reason).await?;
    if more {
        note_more();
    }
    Ok(if ended == 0 { exit::NOTHING } else { 0 })
}

/// What may be ended.
struct Found {
    grants: Vec<Shown>,
    /// Whether there are others, which are not ended.
    more: bool,
}

/// Finds the grants of one resource.
async fn find_one(
    locks: &dyn Locks,
    args: &ForceArgs,
    resource: &str,
    reason: &str,
) -> Result<Found, ToolError> {
    let asked = pb::EndLocksRequest {
        namespace: args.names.namespace.clone(),
        resource_id: resource.to_owned(),
        grant_id: args.grant.clone().unwrap_or_default(),
        limit: GRANTS_MAX.into(),
        reason: reason.to_owned(),
        dry_run: true,
        ..Default::default()
    };
    let found = locks.end(asked).await?;
    Ok(Found { grants: flattened(found.ended), more: found.more })
}

/// Finds the grants of all resources of a prefix. They are listed, because a list has pages: one
/// call that ends is cut off after seconds, and begins from the start when it is repeated.
async fn find_all(locks: &dyn Locks, args: &ForceArgs) -> Result<Found, ToolError> {
    let namespace = args.names.namespace.clone();
    let prefix = args.prefix.clone().unwrap_or_default();
    let scope = pb::LockScope { namespace, prefix, children: false };
    let mut pages = Pages::new(locks, scope, String::new());
    let (mut grants, mut more) = (Vec::new(), false);
    let mut seen = HashSet::new();
    while let Some(lock) = pages.next().await? {
        more |= lock.grants.len() < usize::try_from(lock.grants_total).unwrap_or_default();
        // A list may name a lock twice.
        let mut new = flattened(vec![lock]);
        new.retain(|shown| shown.has_no_id() || seen.insert(shown.grant.grant_id.clone()));
        grants.extend(new);
        if grants.len() > usize::from(GRANTS_MAX) {
            grants.truncate(GRANTS_MAX.into());
            more = true;
            break;
        }
    }
    Ok(Found { grants, more })
}

/// Ends the grants that were shown. Returns how many were held until then.
async fn end_all(
    locks: &dyn Locks,
    grants: &[Shown],
    reason: &str,
) -> Result<usize, ToolError> {
    let mut without_id = BTreeSet::new();
    let ones = grants.iter().filter(|grant| {
        // One call ends all that have no ID.
        !grant.has_no_id() || without_id.insert(grant.of.clone())
    });
    let ending =
        stream::iter(ones).map(|grant| async move { (grant, end(locks, grant, reason).await) });
    let mut ending = ending.buffered(AT_A_TIME);
    let (mut ended, mut failed) = (0, None);
    while let Some((grant, result)) = ending.next().await {
        match result {
            Ok(true) => {
                note(&format!("ended {}; reason: {}", grant.line(), escaped(reason)));
                ended += 1;
            }
            Ok(false) => note(&format!("no longer held as shown: {}", grant.line())),
            Err(error) => {
                note(&format!("failed: {}; {error}", grant.line()));
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        None => Ok(ended),
        Some(error) => {
            note(&format!("{ended} of {} were ended", grants.len()));
            Err(error)
        }
    }
}

/// Ends one grant. Returns whether it was held until then.
async fn end(locks: &dyn Locks, shown: &Shown, reason: &str) -> Result<bool, ToolError> {
    let (namespace, resource_id) = shown.of.clone();
    let asked = pb::EndLocksRequest {
        resource_id,
        namespace,
        grant_id: shown.grant.grant_id.clone(),
        limit: GRANTS_MAX.into(),
        reason: reason.to_owned(),
        ..Default::default()
    };
    if shown.has_no_id() {
        // It is ended by its name: what has followed it since it was shown must not be.
        let again = pb::EndLocksRequest { dry_run: true, ..asked.clone() };
        if !ended(locks.end(again).await)?.iter().all(Shown::has_no_id) {
            return Ok(false);
        }
    }
    Ok(!ended(locks.end(asked).await)?.is_empty())
}

fn ended(result: Result<pb::EndLocksResponse, ToolError>) -> Result<Vec<Shown>, ToolError> {
    match result {
        Ok(found) => Ok(flattened(found.ended)),
        Err(error) if error.is_not_held() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn flattened(locks: Vec<pb::LockState>) -> Vec<Shown> {
    let grants = locks.into_iter().flat_map(|lock| {
        let of = (lock.namespace, lock.resource_id);
        lock.grants.into_iter().map(move |grant| Shown { of: of.clone(), grant })
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
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn user_at_host() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| env::var(name).ok())
        .find(|user| !user.trim().is_empty())
        .unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tonic::async_trait;

    use super::*;
    use crate::locks::Events;

    /// A store that answers each end with the next of these, and notes what it was asked.
    #[derive(Default)]
    struct Script {
        answers: Mutex<Vec<Vec<pb::LockState>>>,
        ended: Mutex<Vec<pb::EndLocksRequest>>,
    }

    #[async_trait]
    impl Locks for Script {
        async fn get(&self, _: pb::GetLockRequest) -> Result<pb::GetLockResponse, ToolError> {
            Err(ToolError::usage("unused"))
        }
        async fn list(
            &self,
            _: pb::ListLocksRequest,
        ) -> Result<pb::ListLocksResponse, ToolError> {
            Err(ToolError::usage("unused"))
        }
        async fn waiters(
            &self,
            _: pb::ListWaitersRequest,
        ) -> Result<pb::ListWaitersResponse, ToolError> {
            Err(ToolError::usage("unused"))
        }
        async fn watch(&self, _: pb::WatchLocksRequest) -> Result<Events, ToolError> {
            Err(ToolError::usage("unused"))
        }
        async fn end(
            &self,
            asked: pb::EndLocksRequest,
        ) -> Result<pb::EndLocksResponse, ToolError> {
            if !asked.dry_run {
                self.ended.lock().unwrap().push(asked);
            }
            let ended = self.answers.lock().unwrap().remove(0);
            Ok(pb::EndLocksResponse { ended, more: false })
        }
    }

    /// A lock with grants of these IDs.
    fn lock(ids: &[&str]) -> pb::LockState {
        let grants = ids
            .iter()
            .map(|id| pb::GrantInfo { grant_id: (*id).to_owned(), ..Default::default() });
        pb::LockState {
            resource_id: "r".into(),
            grants: grants.collect(),
            ..Default::default()
        }
    }

    async fn force(answers: &[&[&str]]) -> (u8, Vec<String>) {
        let answers = answers.iter().map(|ids| vec![lock(ids)]).collect();
        let script = Script { answers: Mutex::new(answers), ..Default::default() };
        let args = ForceArgs {
            resource: Some("r".into()),
            prefix: None,
            names: NamespaceArgs::default(),
            grant: None,
            reason: None,
            dry_run: false,
            yes: true,
        };
        let status = run(&script, &args).await.unwrap();
        let ended = script.ended.into_inner().unwrap();
        (status, ended.into_iter().map(|asked| asked.grant_id).collect())
    }

    #[tokio::test]
    async fn a_grant_without_an_id_is_ended_by_name() {
        assert_eq!(force(&[&[""], &[""], &[""]]).await, (0, vec![String::new()]));
    }

    /// It once ended the grant of an app that had followed while a user was asked.
    #[tokio::test]
    async fn what_has_followed_a_grant_without_an_id_is_not_ended() {
        assert_eq!(force(&[&[""], &["a"]]).await, (exit::NOTHING, vec![]));
    }

    #[tokio::test]
    async fn grants_are_ended_by_their_ids() {
        assert_eq!(
            force(&[&["a", "b"], &["a"], &["b"]]).await,
            (0, vec!["a".into(), "b".into()])
        );
    }
}
