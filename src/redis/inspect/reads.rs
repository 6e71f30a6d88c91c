//! Reads locks for inspection. Nothing here writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ::redis::{Cmd, Value, from_redis_value};
use futures_util::future::try_join_all;
use leasehold_lock::{
    BackendError, ResourceId, Violation,
    inspect::{GrantView, LockView, Selection},
};
use tokio::time::Instant;
use tracing::warn;

use super::{
    super::{
        keys::{Keys, Slot},
        library::Verb,
        router::{OPEN, Router},
        way::Way,
    },
    cursors::After,
    seen::{Seen, read_seen},
};

/// The length of what stands before the resource in the name of a key.
const KIND_AND_TAG: usize = "\x01h{tag}".len();
/// How many keys a list's function scans.
const KEYS_MAX: usize = 1000;
/// How many resources a function returns at most. It scans too few keys to find many more.
pub(super) const FOUND_MAX: usize = 500;
/// How many resources a function reads, with up to `GRANTS_SHOWN_MAX` grants each.
pub(super) const RESOURCES_MAX: usize = 32;
/// How many grants or waiters of one resource a function reads.
pub(super) const READ_MAX: usize = 500;
/// A watch finds an unreadable resource again every 2 s, so it is not logged each time.
const UNREADABLE_LOGGED_EVERY: Duration = Duration::from_secs(60);

impl Router {
    /// Searches a part of the keys of one server: see [`scan`](Self::scan). Returns the cursor,
    /// 0 at the end.
    pub(super) async fn scan_one(
        &self,
        way: Way,
        keys: Keys<'_>,
        begin: u64,
        prefix: &str,
        most: usize,
        until: Instant,
    ) -> Result<(u64, BTreeSet<ResourceId>), BackendError> {
        let pattern = format!("\x01[hr]{{???}}{}*", literally(prefix));
        let arguments = |request: &mut Cmd, _| {
            request.arg(begin).arg(&pattern).arg(most).arg(KEYS_MAX);
        };
        let answer = self.call_over(way, Verb::Scan, keys, arguments, false, until).await;
        let value = answer.map_err(not_permitted)?.value;
        let (end, keys): (u64, Vec<Vec<u8>>) =
            from_redis_value(value).map_err(|_| strange())?;
        // Another application's keys may match.
        let resource = |key: &Vec<u8>| {
            let name = str::from_utf8(key.get(KIND_AND_TAG..)?).ok()?;
            ResourceId::new(name).ok()
        };
        Ok((end, keys.iter().filter_map(resource).collect()))
    }

    /// Reads resources, with up to `limit` grants each. A resource is `None` if another
    /// client has written one of its keys.
    pub(super) async fn see(
        &self,
        resources: &[ResourceId],
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Vec<Option<Seen>>, BackendError> {
        if !self.has_several() {
            return self.see_together(resources, after, limit, until).await;
        }
        // One slot at a time. The calls share the connections.
        let mut slots: BTreeMap<Slot, Vec<usize>> = BTreeMap::new();
        for (at, resource) in resources.iter().enumerate() {
            slots.entry(Slot::of(resource)).or_default().push(at);
        }
        let reading = slots.into_values().map(|places| async move {
            let some: Vec<_> =
                places.iter().filter_map(|at| resources.get(*at)).cloned().collect();
            let seen = match self.see_together(&some, after, limit, until).await {
                Err(BackendError::Unsupported(why)) if *why == *OPEN => {
                    try_join_all(some.iter().map(|it| self.peek(it, until))).await
                }
                other => other,
            };
            seen.map(|seen| places.into_iter().zip(seen).collect::<Vec<_>>())
        });
        let mut seen: Vec<_> = try_join_all(reading).await?.into_iter().flatten().collect();
        seen.sort_by_key(|(at, _)| *at);
        Ok(seen.into_iter().map(|(_, seen)| seen).collect())
    }

    async fn see_together(
        &self,
        resources: &[ResourceId],
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Vec<Option<Seen>>, BackendError> {
        if resources.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = |request: &mut Cmd, _| {
            match after {
                None => request.arg("").arg(""),
                Some(After { since_ms, id: None }) => request.arg(since_ms).arg(""),
                Some(After { since_ms, id: Some(id) }) => {
                    request.arg(since_ms).arg(id.to_string())
                }
            };
            request.arg(limit.min(READ_MAX));
        };
        let answer =
            self.call(Verb::Inspect, Keys::All(resources), arguments, false, until).await;
        let Value::Array(answers) = answer?.value else { return Err(strange()) };
        if answers.len() != resources.len() {
            return Err(strange());
        }
        let seen: Vec<_> = answers.into_iter().map(read_seen).collect();
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

    /// The selected grants of a resource that was read; none if it is unreadable. If only
    /// some of its grants are selected, all of them are read.
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
        // An omitted grant is foreign, and then it is the only one.
        if selection.holder_prefix.is_empty() && !lock.grants.is_empty() {
            lock.grants_total = grants_total;
        }
        Ok(lock)
    }
}

/// A pattern that matches exactly this text.
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

/// A user without the permission for SCAN, which no lock needs, cannot list or watch
/// scopes. A retry does not help.
fn not_permitted(error: BackendError) -> BackendError {
    // The server's texts up to Redis 7.0, and later.
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
    BackendError::Unavailable("the server's answer was not one of the function's".into())
}

/// The refusal for a single unreadable resource.
pub(super) fn unreadable() -> BackendError {
    BackendError::Invalid(Violation::new(
        "resource_id",
        "has Redis keys of leasehold that somebody else wrote; delete them, or use another name",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_for_letter_by_letter() {
        assert_eq!(literally("a*b?[c]\\^-ä"), "a\\*b\\?\\[c\\]\\\\^-ä");
    }
}
