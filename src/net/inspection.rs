//! What both edges do alike to show the locks: pages, and messages of what is told.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use leasehold_proto::locks as pb;
use tonic::Status;
use tracing::info;
use uuid::Uuid;

use super::{peer::Peer, status::ErrorDescription, wire::duration};
use crate::lock::{
    GrantId, Holder, LockError, Mode, ResourceId, Violation, check_text,
    inspect::{
        Cursor, EndCause, EndedGrant, GrantView, LockView, PAGE_BYTES_MAX, PageRequest,
        WaiterView, WatchEvent,
    },
};

const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;
/// The longest reason for ending a grant, and the longest prefix of a holder, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// The longest prefix of a name, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// The first bytes of a page token tell of which list it is.
const LIST_BYTES: usize = 8;

/// Reads a number of items, where 0 means 100; the violation names `field`.
pub(crate) fn limit(field: &str, asked: i32) -> Result<usize, Violation> {
    match usize::try_from(asked) {
        Ok(0) => Ok(PAGE_SIZE_DEFAULT),
        Ok(limit) if limit <= PAGE_SIZE_MAX => Ok(limit),
        _ => Err(Violation::new(
            field,
            format!("is {asked}; use 1 to {PAGE_SIZE_MAX}, or 0 for {PAGE_SIZE_DEFAULT}"),
        )),
    }
}

/// Reads a reason, for the log; the violation names `reason`.
pub(crate) fn reason(text: &str) -> Result<&str, Violation> {
    check_text("reason", text, TEXT_BYTES_MAX)?;
    Ok(text)
}

/// Reads the prefix of a holder; the violation names `holder_prefix`.
pub(crate) fn holder_prefix(text: String) -> Result<String, Violation> {
    check_text("holder_prefix", &text, TEXT_BYTES_MAX)?;
    Ok(text)
}

/// A list of which pages are asked for. Page tokens of one list are refused by any other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List([u8; LIST_BYTES]);

impl List {
    /// The list with this description: everything that determines what is in it.
    pub(crate) fn new(description: &[&str]) -> Self {
        // Each part with its length, so that two descriptions never agree by accident.
        let text: String =
            description.iter().map(|part| format!("{}:{part}", part.len())).collect();
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
        let mut list = [0; LIST_BYTES];
        list.copy_from_slice(&hash.as_bytes()[..LIST_BYTES]);
        Self(list)
    }

    /// Reads which page is asked for; the violation names `page_size` or `page_token`.
    pub(crate) fn page(self, size: i32, token: &str) -> Result<PageRequest, Violation> {
        let limit = limit("page_size", size)?;
        let after = if token.is_empty() { None } else { Some(self.cursor(token)?) };
        Ok(PageRequest { after, limit, bytes_max: PAGE_BYTES_MAX })
    }

    fn cursor(self, token: &str) -> Result<Cursor, Violation> {
        let read = BASE64_URL_SAFE_NO_PAD.decode(token).ok();
        let cursor = read.as_deref().and_then(|bytes| bytes.strip_prefix(&self.0));
        let cursor = cursor.and_then(|cursor| std::str::from_utf8(cursor).ok());
        cursor.map(Into::into).ok_or_else(unknown_page)
    }

    /// The token of the page that follows; empty if there is none.
    pub(crate) fn token(self, next: Option<&Cursor>) -> String {
        let Some(next) = next else { return String::new() };
        BASE64_URL_SAFE_NO_PAD.encode([&self.0, next.as_bytes()].concat())
    }
}

/// The refusal of a page token that is not of the list.
pub(crate) fn unknown_page() -> Violation {
    Violation::new(
        "page_token",
        "is not of this list; give the one that its last page told, with otherwise the same \
         request",
    )
}

/// A resource as its caller names it: its ID and its namespace.
pub(crate) type Named = (String, Vec<String>);

/// The name on a component's socket: the store's.
pub(crate) fn raw(resource: &ResourceId) -> Named {
    (resource.as_str().to_owned(), Vec::new())
}

/// Writes who holds a resource that is named so.
pub(crate) fn state(lock: &LockView, (resource_id, namespace): Named) -> pb::LockState {
    pb::LockState {
        resource_id,
        namespace,
        grants: lock.grants.iter().map(grant).collect(),
        grants_total: count(lock.grants_total),
    }
}

/// Writes a number of something.
pub(crate) fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes somebody who waits.
pub(crate) fn waiter(waiter: &WaiterView) -> pb::WaiterInfo {
    pb::WaiterInfo {
        position: count(waiter.position),
        holder: text(waiter.holder.as_ref()),
        mode: mode(waiter.mode).into(),
        since: waiter.since_unix_ms.map(timestamp),
    }
}

/// Writes what a watcher is told of resources that are named by `name`.
pub(crate) fn event(event: &WatchEvent, name: impl Fn(&ResourceId) -> Named) -> pb::LockEvent {
    match event {
        WatchEvent::Changed { lock, ended } => pb::LockEvent {
            state: Some(state(lock, name(&lock.resource))),
            ended: ended.iter().map(ended_grant).collect(),
            ..Default::default()
        },
        WatchEvent::Restarted => pb::LockEvent { restarted: true, ..Default::default() },
        WatchEvent::Synced => pb::LockEvent { synced: true, ..Default::default() },
    }
}

fn ended_grant(EndedGrant { grant: ended, cause }: &EndedGrant) -> pb::EndedGrant {
    let cause = match cause {
        EndCause::Unknown => pb::EndCause::Unknown,
        EndCause::Released => pb::EndCause::Released,
        EndCause::Expired => pb::EndCause::Expired,
        EndCause::Forced => pb::EndCause::Forced,
    };
    pb::EndedGrant { grant: Some(grant(ended)), cause: cause.into() }
}

fn grant(grant: &GrantView) -> pb::GrantInfo {
    pb::GrantInfo {
        grant_id: grant.id.map(|id| id.to_string()).unwrap_or_default(),
        holder: text(grant.holder.as_ref()),
        mode: mode(grant.mode).into(),
        remaining: grant.remaining.map(duration),
        since: grant.since_unix_ms.map(timestamp),
        foreign: grant.foreign,
    }
}

fn text(holder: Option<&Holder>) -> String {
    holder.map(|holder| holder.as_str().to_owned()).unwrap_or_default()
}

fn mode(mode: Mode) -> pb::LockMode {
    match mode {
        Mode::Exclusive => pb::LockMode::Exclusive,
        Mode::Shared => pb::LockMode::Shared,
    }
}

fn timestamp(unix_ms: u64) -> prost_types::Timestamp {
    let since = Duration::from_millis(unix_ms);
    prost_types::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos().cast_signed(),
    }
}

/// The refusal to end every lock of a store without being asked to.
pub(crate) fn all_is_missing() -> Violation {
    Violation::new(
        "all",
        "is missing: a scope without a namespace and without a prefix needs it",
    )
}

/// The refusal of a request that names neither a resource nor a scope.
pub(crate) fn none_given() -> Violation {
    Violation::new("resource_id", "is missing; give it, or a scope")
}

/// The refusal of a request that names both.
pub(crate) fn both_given() -> Violation {
    Violation::new("scope", "was given beside resource_id; give one of them")
}

/// Reads the ID of the only grant that is meant; an empty one means all.
pub(crate) fn grant_id(id: &str) -> Result<Option<GrantId>, Violation> {
    if id.is_empty() { Ok(None) } else { id.parse().map(Some) }
}

/// Refuses the ID of a grant beside a scope.
pub(crate) fn must_have_no_grant_id(id: &str) -> Result<(), Violation> {
    if id.is_empty() {
        return Ok(());
    }
    Err(Violation::new("grant_id", "was given beside a scope; give its resource_id"))
}

/// Refuses the prefix of a holder beside a resource.
pub(crate) fn must_have_no_holder_prefix(prefix: &str) -> Result<(), Violation> {
    if prefix.is_empty() {
        return Ok(());
    }
    Err(Violation::new("holder_prefix", "was given beside resource_id; give a scope"))
}

/// Reads what names begin with; the violation names `prefix`.
pub(crate) fn name_prefix(text: String) -> Result<String, Violation> {
    check_text("prefix", &text, NAME_BYTES_MAX)?;
    Ok(text)
}

/// An error as a stream ends with it.
pub(crate) fn status(error: LockError) -> Status {
    ErrorDescription::from(error).into()
}

/// Who ends grants by force, and why, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForcedBy<'a> {
    /// The ID of the app whose sidecar was called.
    pub(crate) app_id: Option<&'a str>,
    /// The process that called.
    pub(crate) peer: Option<Peer>,
    /// Why; may be empty.
    pub(crate) reason: &'a str,
}

impl ForcedBy<'_> {
    /// Logs the end of a grant; `None` if the store does not tell which it was.
    pub(crate) fn log(self, store: &str, resource: &str, grant: Option<&GrantView>) {
        let Self { app_id, peer, reason } = self;
        let reason = (!reason.is_empty()).then_some(reason);
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
        let holder = grant.and_then(|grant| grant.holder.as_ref()).map(Holder::as_str);
        let grant_id = grant.and_then(|grant| grant.id).map(|id| id.to_string());
        info!(app_id, store, resource, holder, grant_id, uid, pid, reason, "unlocked by force");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_continues_its_own_list_only() {
        let list = List::new(&["ListLocks", "store", "a"]);
        let token = list.token(Some(&"3:ü/name".into()));
        assert_eq!(list.page(0, &token).unwrap().after.as_deref(), Some("3:ü/name"));
        for other in [&["ListLocks", "store", "b"][..], &["ListLocks", "storea", ""], &[]] {
            assert_eq!(List::new(other).page(0, &token).unwrap_err().field, "page_token");
        }
    }

    #[test]
    fn a_forged_page_token_is_refused() {
        let list = List::new(&["ListLocks"]);
        let invalid = BASE64_URL_SAFE_NO_PAD.encode([&list.0[..], &[0xff]].concat());
        for bad in ["x", "=", "AAAA", "ü", " ", &invalid] {
            assert_eq!(list.page(0, bad).unwrap_err().field, "page_token", "{bad:?}");
        }
    }

    #[test]
    fn a_page_has_1_to_1000_items_and_100_by_default() {
        let limit = |size| List::new(&[]).page(size, "").map(|page| page.limit);
        assert_eq!((limit(0), limit(1), limit(1000)), (Ok(100), Ok(1), Ok(1000)));
        for bad in [-1, 1001, i32::MIN, i32::MAX] {
            assert_eq!(limit(bad).unwrap_err().field, "page_size", "{bad}");
        }
    }

    #[test]
    fn a_time_before_the_second_has_nanoseconds() {
        let told = timestamp(1_500);
        assert_eq!((told.seconds, told.nanos), (1, 500_000_000));
    }
}
