//! What is read of locks in order to show them. Nothing here writes anything.

use std::{collections::BTreeSet, time::Duration};

use ::redis::{Cmd, Value, from_redis_value};
use tokio::time::Instant;
use tracing::warn;

use super::{
    super::{
        link::Link,
        reply::{grant_view, read_since},
        scripts::SCRIPTS,
    },
    cursors::After,
};
use crate::lock::{
    BackendError, LockId, RequestId, ResourceId, Violation,
    inspect::{GrantView, LockView, Selection},
};

/// How many keys a script of a list goes through.
const KEYS_MAX: usize = 1000;
/// How many resources a script reads, with up to `GRANTS_SHOWN_MAX` grants each.
pub(super) const RESOURCES_MAX: usize = 32;
/// How many grants or waiters of one resource a script reads.
pub(super) const READ_MAX: usize = 500;
/// A watch finds what cannot be read every 2 s, so it is not logged each time.
const UNREADABLE_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// What was read of a resource.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(super) grants_total: usize,
    pub(super) waiters: usize,
    pub(super) grants: Vec<GrantView>,
    /// How far its grants were read, if there may be more.
    pub(super) next: Option<After>,
    /// The lock ID of its exclusive grant, if the request for that published it.
    pub(super) published: Option<LockId>,
}

impl Link {
    /// Searches a part of the keys from `begin` for records of resources with this prefix.
    /// Tells where it ended, 0 if there are no more keys. Rarely it finds more than `most`.
    pub(super) async fn scan(
        &self,
        begin: u64,
        prefix: &str,
        most: usize,
        until: Instant,
    ) -> Result<(u64, BTreeSet<ResourceId>), BackendError> {
        let pattern = format!("\x01[hr]{}*", literally(prefix));
        let arguments = |request: &mut Cmd, _| {
            request.arg(begin).arg(&pattern).arg(most).arg(KEYS_MAX);
        };
        let answer = self.run(&SCRIPTS.scan, &[], arguments, until).await;
        let value = answer.map_err(not_permitted)?.value;
        let (end, keys): (u64, Vec<Vec<u8>>) =
            from_redis_value(value).map_err(|_| strange())?;
        // Another application's keys may match.
        let resource =
            |key: &Vec<u8>| ResourceId::new(str::from_utf8(key.get(2..)?).ok()?).ok();
        Ok((end, keys.iter().filter_map(resource).collect()))
    }

    /// Reads resources, with up to `limit` grants each. A resource is `None` if its keys are
    /// not as leasehold writes them, because somebody else wrote one of them.
    pub(super) async fn see(
        &self,
        resources: &[ResourceId],
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Vec<Option<Seen>>, BackendError> {
        if resources.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = resources.iter().map(ResourceId::as_str).collect();
        let arguments = |request: &mut Cmd, _| {
            match after {
                None => request.arg("").arg(""),
                Some(After { since_ms, id: None }) => request.arg(since_ms).arg(""),
                Some(After { since_ms, id: Some(id) }) => {
                    request.arg(since_ms).arg(id.to_string())
                }
            };
            request.arg(limit.min(READ_MAX)).arg(RequestId::PUBLISHING);
        };
        let answer = self.run(&SCRIPTS.inspect, &keys, arguments, until).await;
        let Value::Array(told) = answer?.value else { return Err(strange()) };
        if told.len() != resources.len() {
            return Err(strange());
        }
        let seen: Vec<_> = told.into_iter().map(read_seen).collect();
        let unreadable = resources.iter().zip(&seen).find(|(_, seen)| seen.is_none());
        if let Some((resource, _)) = unreadable {
            self.log_unreadable(resource);
        }
        Ok(seen)
    }

    /// Reads a page of the grants of a resource.
    pub(super) async fn see_more(
        &self,
        resource: &ResourceId,
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Option<Seen>, BackendError> {
        let seen = self.see(std::slice::from_ref(resource), after, limit, until).await?;
        Ok(seen.into_iter().next().flatten())
    }

    fn log_unreadable(&self, resource: &ResourceId) {
        let now = Instant::now();
        let mut logged = self.unreadable_logged.lock();
        if logged.is_none_or(|last| now.duration_since(last) >= UNREADABLE_LOGGED_EVERY) {
            *logged = Some(now);
            warn!(
                %resource,
                "lists and watches leave out a resource, because somebody else wrote into the \
                 Redis keys that leasehold keeps for it; delete those keys"
            );
        }
    }

    /// The selected grants of what was read; none if it could not be read. If only some of a
    /// resource's grants are selected, all of them are read.
    pub(super) async fn select(
        &self,
        resource: ResourceId,
        seen: Option<Seen>,
        selection: &Selection,
        until: Instant,
    ) -> Result<LockView, BackendError> {
        let mut seen = seen.unwrap_or_default();
        let is_selected =
            |grant: &GrantView| !grant.foreign && selection.has_holder(grant.holder.as_ref());
        let grants_total = seen.grants_total;
        let mut grants = Vec::new();
        loop {
            grants.extend(seen.grants.into_iter().filter(is_selected));
            let is_enough = selection.holder_prefix.is_empty() && !grants.is_empty();
            let Some(after) = seen.next.filter(|_| !is_enough) else { break };
            let more = self.see_more(&resource, Some(after), READ_MAX, until).await?;
            seen = more.unwrap_or_default();
        }
        grants.iter_mut().for_each(|grant| grant.remaining = None);
        let mut lock = LockView::new(resource, grants);
        // What is left out is foreign, and then it is the only grant.
        if selection.holder_prefix.is_empty() && !lock.grants.is_empty() {
            lock.grants_total = grants_total;
        }
        Ok(lock)
    }
}

/// Reads what a script tells of a resource; `None` if the keys of the resource are not as
/// leasehold writes them.
pub(crate) fn read_seen(told: Value) -> Option<Seen> {
    let Value::Array(parts) = told else { return None };
    let mut parts = parts.into_iter();
    let grants_total = from_redis_value(parts.next()?).ok()?;
    let waiters = from_redis_value(parts.next()?).ok()?;
    let Value::Array(views) = parts.next()? else { return None };
    let next = match parts.next() {
        None | Some(Value::Nil) => None,
        Some(next) => {
            let (token, id): (String, String) = from_redis_value(next).ok()?;
            Some(After { since_ms: read_since(&token)?, id: id.parse().ok() })
        }
    };
    let published: Option<String> =
        parts.next().map(from_redis_value).transpose().ok()?.flatten();
    let published = published.and_then(|lock_id| LockId::new(&lock_id).ok());
    let grants = views.into_iter().filter_map(read_view).collect();
    Some(Seen { grants_total, waiters, grants, next, published })
}

fn read_view(view: Value) -> Option<GrantView> {
    let (id, mode, holder, token, left_ms): (String, String, String, String, i64) =
        from_redis_value(view).ok()?;
    let view = grant_view(&id, &mode, &holder, &token);
    // Foreign locks may have no end.
    let remaining = u64::try_from(left_ms).ok().map(Duration::from_millis);
    Some(GrantView { remaining, foreign: view.id.is_none(), ..view })
}

/// A pattern that matches just this text.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// A user without a permission for SCAN, which no lock needs, cannot list or watch scopes.
/// To try again does not help.
fn not_permitted(error: BackendError) -> BackendError {
    // What the server writes up to Redis 7.0, and later.
    const REFUSALS: [&str; 2] = ["can't run this command", "no permissions"];
    match error {
        BackendError::Unavailable(why) if REFUSALS.iter().any(|text| why.contains(text)) => {
            let what = "the Redis user lacks a permission that docs/redis.md lists";
            BackendError::Unsupported(format!("{what}: {why}").into())
        }
        error => error,
    }
}

pub(super) fn strange() -> BackendError {
    BackendError::Unavailable("the server's answer was not one of the script's".into())
}

/// The refusal to tell of one resource that cannot be read.
pub(super) fn unreadable() -> BackendError {
    BackendError::Invalid(Violation::new(
        "resource_id",
        "has Redis keys of leasehold that somebody else wrote; delete them, or use another name",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn resource(views: Vec<Value>, next: Option<Value>) -> Value {
        let total = i64::try_from(views.len()).unwrap();
        let parts = [Value::Int(total), Value::Int(2), Value::Array(views)];
        Value::Array(parts.into_iter().chain(next).collect())
    }

    #[test]
    fn a_resource_is_read_with_its_grants_and_where_they_go_on() {
        let id = "0".repeat(32);
        let view = [text(&id), text("s"), text("me"), text("7000"), Value::Int(1500)];
        let next = Value::Array(vec![text("7000"), text(&id)]);
        let seen = read_seen(resource(vec![Value::Array(view.into())], Some(next))).unwrap();
        assert_eq!((seen.grants_total, seen.waiters), (1, 2));
        let next = After { since_ms: 7, id: id.parse().ok() };
        assert_eq!(seen.next, Some(next));
        let [grant] = seen.grants.as_slice() else { panic!("{seen:?}") };
        assert_eq!((grant.id, grant.since_unix_ms), (next.id, Some(7)));
        assert_eq!(grant.remaining, Some(Duration::from_millis(1500)));
        assert!(!grant.foreign);
    }

    #[test]
    fn a_resource_that_is_not_as_leasehold_writes_it_is_unreadable() {
        for odd in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![Value::Int(1), Value::Int(0)]),
            resource(Vec::new(), Some(Value::Array(vec![text("1.5"), text("")]))),
        ] {
            assert!(read_seen(odd.clone()).is_none(), "{odd:?}");
        }
    }

    #[test]
    fn a_name_is_searched_for_letter_by_letter() {
        assert_eq!(literally("a*b?[c]\\^-ä"), "a\\*b\\?\\[c\\]\\\\^-ä");
    }
}
