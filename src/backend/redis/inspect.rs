//! How locks are seen.
//!
//! A list walks through all keys of the database with SCAN, because an index of what is held
//! would cost each lock commands. Nothing here writes anything.

use std::{collections::BTreeSet, time::Duration};

use ::redis::{Cmd, Value, from_redis_value};
use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    core::{Core, only_read},
    inspect_cursors::{After, Step, Ticket},
    reply::{grant_view, read_mode, read_since},
    scripts::SCRIPTS,
};
use crate::lock::{
    BackendError, Holder, ResourceId,
    inspect::{
        GRANTS_SHOWN_MAX, GrantView, Inspect, Inspected, LockView, Page, PageRequest,
        Selection, WaiterView,
    },
};

/// How many keys a script of a list goes through.
const KEYS_MAX: usize = 1000;
/// How many resources a script reads, with up to [`GRANTS_SHOWN_MAX`] grants each.
const RESOURCES_MAX: usize = 32;
/// How many grants or waiters of one resource a script reads.
const READ_MAX: usize = 500;

/// What was read of a resource.
#[derive(Default)]
struct Seen {
    grants_total: usize,
    waiters: usize,
    grants: Vec<GrantView>,
    /// How far its grants were read, if there may be more.
    next: Option<After>,
}

#[async_trait]
impl Inspect for Core {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        let mut after = grants.after.as_deref().map(After::read).transpose()?;
        loop {
            let seen = self.see_more(resource, after, grants.limit, until).await?;
            // All that was read may have expired.
            if seen.grants.is_empty() && seen.next.is_some() {
                after = seen.next;
                continue;
            }
            let Seen { grants_total, waiters, grants, next } = seen;
            let lock = LockView { resource: resource.clone(), grants, grants_total };
            return Ok(Inspected { lock, waiters, next: next.map(After::cursor) });
        }
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let at = page.after.as_deref().map_or(Ok(Step::default()), Step::read)?;
        let most = page.limit.min(RESOURCES_MAX);
        let (end, found) = self.scan(at.begin, &selection.name_prefix, most, until).await?;
        let found = at.rest(end, found);
        let first = found.get(..most).unwrap_or(&found);
        let seen = self.see(first, None, GRANTS_SHOWN_MAX, until).await?;
        let (mut items, mut size, mut done) = (Vec::new(), 0, 0_usize);
        for (resource, seen) in first.iter().zip(seen) {
            let lock = self.select(resource.clone(), seen, selection, until).await?;
            done += 1;
            if !lock.grants.is_empty() {
                size += lock.size();
                items.push(lock);
            }
            if size >= page.bytes_max {
                break;
            }
        }
        let next = match found.get(done.saturating_sub(1)) {
            Some(last) if done < found.len() => Some(at.within(end, last)),
            _ => (end != 0).then(|| Step::from(end)),
        };
        Ok(Page { items, next: next.map(|next| next.cursor()) })
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        let after = page.after.as_deref().map(Ticket::read).transpose()?;
        let most = page.limit.min(READ_MAX);
        let arguments = |request: &mut Cmd, _| {
            let after = after.map_or_else(|| "-inf".to_owned(), |ticket| ticket.0.to_string());
            // One more tells whether there is another page.
            request.arg(after).arg(most + 1);
        };
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.waiters, &keys, arguments, until).await;
        let value = answer.map_err(only_read)?.value;
        let (before, told): (usize, Vec<(String, String, String)>) =
            from_redis_value(value).map_err(|_| strange())?;
        let is_last = told.len() <= most;
        let last = told.iter().take(most).last().filter(|_| !is_last);
        let next = last.map(|(ticket, ..)| Ticket::read(ticket)).transpose()?;
        let items = (before + 1..).zip(told.iter().take(most));
        let items = items.map(|(position, (_, mode, holder))| WaiterView {
            position,
            holder: read_holder(holder),
            mode: read_mode(mode),
            since_unix_ms: None,
        });
        Ok(Page { items: items.collect(), next: next.map(Ticket::cursor) })
    }
}

impl Core {
    /// Searches a part of the keys from `begin` for records of resources with this prefix.
    /// Tells where it ended, 0 if there are no more keys. Rarely it finds more than `most`.
    async fn scan(
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
        let answer = self.link.run(&SCRIPTS.scan, &[], arguments, until).await;
        let value = answer.map_err(only_read)?.value;
        let (end, keys): (u64, Vec<Vec<u8>>) =
            from_redis_value(value).map_err(|_| strange())?;
        // Another application's keys may match.
        let resource =
            |key: &Vec<u8>| ResourceId::new(str::from_utf8(key.get(2..)?).ok()?).ok();
        Ok((end, keys.iter().filter_map(resource).collect()))
    }

    /// Reads resources, with up to `limit` grants each.
    async fn see(
        &self,
        resources: &[ResourceId],
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Vec<Seen>, BackendError> {
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
            request.arg(limit.min(READ_MAX));
        };
        let answer = self.link.run(&SCRIPTS.inspect, &keys, arguments, until).await;
        let seen = match answer.map_err(only_read)?.value {
            Value::Array(told) => told.into_iter().map(read_seen).collect(),
            _ => None,
        };
        let seen: Vec<_> = seen.ok_or_else(strange)?;
        if seen.len() == resources.len() { Ok(seen) } else { Err(strange()) }
    }

    /// Reads a page of the grants of a resource.
    async fn see_more(
        &self,
        resource: &ResourceId,
        after: Option<After>,
        limit: usize,
        until: Instant,
    ) -> Result<Seen, BackendError> {
        let seen = self.see(std::slice::from_ref(resource), after, limit, until).await?;
        Ok(seen.into_iter().next().unwrap_or_default())
    }

    /// The selected grants of what was read. If only some of a resource's grants are
    /// selected, all of them are read.
    async fn select(
        &self,
        resource: ResourceId,
        mut seen: Seen,
        selection: &Selection,
        until: Instant,
    ) -> Result<LockView, BackendError> {
        let is_selected =
            |grant: &GrantView| !grant.foreign && selection.has_holder(grant.holder.as_ref());
        let grants_total = seen.grants_total;
        let mut grants = Vec::new();
        loop {
            grants.extend(seen.grants.into_iter().filter(is_selected));
            let is_enough = selection.holder_prefix.is_empty() && !grants.is_empty();
            let Some(after) = seen.next.filter(|_| !is_enough) else { break };
            seen = self.see_more(&resource, Some(after), READ_MAX, until).await?;
        }
        grants.iter_mut().for_each(|grant| grant.remaining = None);
        let mut lock = LockView::new(resource, grants);
        if selection.holder_prefix.is_empty() {
            lock.grants_total = grants_total;
        }
        Ok(lock)
    }
}

fn read_seen(told: Value) -> Option<Seen> {
    let Value::Array(parts) = told else { return None };
    let mut parts = parts.into_iter();
    let grants_total = from_redis_value(parts.next()?).ok()?;
    let waiters = from_redis_value(parts.next()?).ok()?;
    let Value::Array(views) = parts.next()? else { return None };
    let next = match parts.next() {
        None => None,
        Some(next) => {
            let (token, id): (String, String) = from_redis_value(next).ok()?;
            Some(After { since_ms: read_since(&token)?, id: id.parse().ok() })
        }
    };
    let grants = views.into_iter().filter_map(read_view).collect();
    Some(Seen { grants_total, waiters, grants, next })
}

fn read_view(view: Value) -> Option<GrantView> {
    let (id, mode, holder, token, left_ms): (String, String, String, String, i64) =
        from_redis_value(view).ok()?;
    let view = grant_view(&id, &mode, &holder, &token);
    // Foreign locks may have no end.
    let remaining = u64::try_from(left_ms).ok().map(Duration::from_millis);
    Some(GrantView { remaining, foreign: view.id.is_none(), ..view })
}

fn read_holder(label: &str) -> Option<Holder> {
    Holder::new(label).ok().flatten()
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

fn strange() -> BackendError {
    BackendError::Unavailable("the server's answer was not one of the script's".into())
}
