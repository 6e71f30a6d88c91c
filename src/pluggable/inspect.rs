//! Inspection of a third-party store through its `Inspection` service.

use std::collections::HashSet;

use async_trait::async_trait;
use leasehold_lock::{
    BackendError, GrantId, ResourceId,
    inspect::{
        Cursor, Inspect, Inspected, LockView, Mirror, Page, PageRequest, Selection, WaiterView,
    },
};
use leasehold_proto::locks as pb;
use tokio::time::{Duration, Instant, sleep_until, timeout, timeout_at};

use super::{backend::Pluggable, rpc, status::Verb, views};

/// The longest position in a list that is passed on.
const CURSOR_BYTES_MAX: usize = 1536;
/// How many items the protocol allows on a page.
const PAGE_SIZE_MAX: usize = 1000;
/// A watch without an event for this long is broken: `synced` comes every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The minimum time between two openings of a watch for new watchers.
const REOPENED_AFTER: Duration = Duration::from_secs(1);
/// How many held resources a watch may report, so that the mirror has a limit.
const WATCHED_MAX: usize = 1_000_000;

#[async_trait]
impl Inspect for Pluggable {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        let message = pb::GetLockRequest {
            resource_id: resource.as_str().to_owned(),
            page_size: page_size(grants),
            page_token: page_token(grants),
            ..Default::default()
        };
        let getting = self.connection.call(Verb::Inspect, message, Some(until), rpc::get_lock);
        let (_, found) = getting.await?;
        let lock = views::asked_for(resource, found.lock.as_ref(), grants.limit);
        let other = || BackendError::Unavailable("its answer is about another lock".into());
        Ok(Inspected {
            lock: lock.ok_or_else(other)?,
            remaining_short_max: Duration::ZERO,
            published: None,
            waiters: views::count(found.waiters),
            next: cursor(found.next_page_token)?,
        })
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let prefix = selection.name_prefix.clone();
        let message = pb::ListLocksRequest {
            scope: Some(pb::LockScope { prefix, ..Default::default() }),
            holder_prefix: selection.holder_prefix.clone(),
            page_size: page_size(page),
            page_token: page_token(page),
            ..Default::default()
        };
        let listing =
            self.connection.call(Verb::Inspect, message, Some(until), rpc::list_locks);
        let (_, found) = listing.await?;
        let listed = found.locks.iter().take(page.limit);
        let listed = listed.filter_map(|state| views::listed(state, selection));
        let items = listed.filter(|lock| !lock.grants.is_empty()).collect();
        Ok(Page { items, next: cursor(found.next_page_token)? })
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        let message = pb::ListWaitersRequest {
            resource_id: resource.as_str().to_owned(),
            page_size: page_size(page),
            page_token: page_token(page),
            ..Default::default()
        };
        let listing =
            self.connection.call(Verb::Inspect, message, Some(until), rpc::list_waiters);
        let (_, found) = listing.await?;
        let items = found.waiters.iter().take(page.limit).map(views::waiter).collect();
        Ok(Page { items, next: cursor(found.next_page_token)? })
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        loop {
            if let Err(error) = self.follow(mirror).await {
                return error;
            }
        }
    }
}

/// The initial states of a watch, until all of them are reported.
struct Beginning {
    /// The mirror's newest watcher when the watch was opened.
    newest: u64,
    reported: HashSet<ResourceId>,
}

/// Applies an event of a watch that may report `most` held resources.
fn note(
    event: &pb::LockEvent,
    beginning: &mut Option<Beginning>,
    mirror: &Mirror,
    most: usize,
) -> Result<(), BackendError> {
    if event.restarted {
        mirror.restart();
        let newest = mirror.newest_subscription();
        *beginning = Some(Beginning { newest, reported: HashSet::new() });
    }
    let all = Selection::default();
    if let Some(lock) = event.state.as_ref().and_then(|state| views::listed(state, &all)) {
        match beginning {
            Some(beginning) => {
                beginning.reported.insert(lock.resource.clone());
                mirror.note_read(lock);
            }
            None => mirror.set(lock, views::ended(&event.ended)),
        }
    }
    if mirror.held_count() > most {
        let why = format!("its watch reports more than {most} held locks");
        return Err(BackendError::Unavailable(why.into()));
    }
    if event.synced
        && let Some(Beginning { newest, reported }) = beginning.take()
    {
        // A resource that an earlier watch reported and this one did not is free.
        for freed in mirror.held(|resource| !reported.contains(resource)) {
            mirror.note_read(LockView::free(freed));
        }
        mirror.complete_up_to(newest);
    }
    Ok(())
}

/// Waits for a watch of the mirror that is newer than `newest`, at the earliest at `not_before`.
async fn newcomer(mirror: &Mirror, newest: u64, not_before: Instant) {
    let mut changed = mirror.subscriptions_changed();
    while mirror.newest_subscription() <= newest {
        // The sender lives as long as the mirror.
        let _ = changed.changed().await;
    }
    sleep_until(not_before).await;
}

impl Pluggable {
    /// Keeps the mirror up to date by one watch of the store. Returns when a new watcher has
    /// begun: only the initial states of a new watch show what is held by then.
    async fn follow(&self, mirror: &Mirror) -> Result<(), BackendError> {
        let newest = mirror.newest_subscription();
        let reopen_at = Instant::now() + REOPENED_AFTER;
        let message = pb::WatchLocksRequest::default();
        // Without `until`, which would end the stream as well.
        let opening = self.connection.call(Verb::Inspect, message, None, rpc::watch_locks);
        let silent = |_| BackendError::Unavailable("its watch is silent".into());
        let (_, mut events) = timeout(SILENCE_MAX, opening).await.map_err(silent)??;
        let mut beginning = Some(Beginning { newest, reported: HashSet::new() });
        let mut silent_at = Instant::now() + SILENCE_MAX;
        loop {
            let event = tokio::select! {
                event = timeout_at(silent_at, events.message()) => event.map_err(silent)?,
                () = newcomer(mirror, newest, reopen_at), if beginning.is_none() => return Ok(()),
            };
            silent_at = Instant::now() + SILENCE_MAX;
            let event = event.map_err(|status| super::status::read(Verb::Inspect, &status))?;
            let ended = || BackendError::Unavailable("its watch has ended".into());
            note(&event.ok_or_else(ended)?, &mut beginning, mirror, WATCHED_MAX)?;
        }
    }

    /// Ends the grant with this public ID, and no other.
    pub(super) async fn end(
        &self,
        resource: &ResourceId,
        id: GrantId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let message = pb::EndLocksRequest {
            resource_id: resource.as_str().to_owned(),
            grant_id: id.to_string(),
            ..Default::default()
        };
        let ending = self.connection.call(Verb::End, message, Some(until), rpc::end_locks);
        let (_, answer) = ending.await?;
        let all = Selection::default();
        let mut ended = answer.ended.iter().filter_map(|state| views::listed(state, &all));
        let is_it = |lock: LockView| {
            lock.resource == *resource && lock.grants.iter().any(|grant| grant.id == Some(id))
        };
        if ended.any(is_it) { Ok(()) } else { Err(BackendError::NotHeld { held: false }) }
    }
}

fn page_size(page: &PageRequest) -> i32 {
    i32::try_from(page.limit.clamp(1, PAGE_SIZE_MAX)).unwrap_or_default()
}

fn page_token(page: &PageRequest) -> String {
    page.after.as_deref().unwrap_or_default().to_owned()
}

fn cursor(token: String) -> Result<Option<Cursor>, BackendError> {
    match token.len() {
        0 => Ok(None),
        1..=CURSOR_BYTES_MAX => Ok(Some(token.into())),
        _ => Err(BackendError::Unavailable("its page token is too long".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(name: &str, grant_id: &str) -> pb::LockEvent {
        let grants = vec![pb::GrantInfo { grant_id: grant_id.into(), ..Default::default() }];
        let state = pb::LockState {
            resource_id: name.into(),
            grants,
            grants_total: 1,
            ..Default::default()
        };
        pb::LockEvent { state: Some(state), ..Default::default() }
    }

    #[test]
    fn a_watch_that_reports_too_many_locks_is_broken_off() {
        let (mirror, id) = (Mirror::default(), "0".repeat(32));
        for event in [held("a", &id), held("b", &id), held("b", &id), held("c", "")] {
            assert_eq!(note(&event, &mut None, &mirror, 2), Ok(()));
        }
        let more = note(&held("d", &id), &mut None, &mirror, 2);
        assert!(matches!(more, Err(BackendError::Unavailable(_))), "{more:?}");
    }
}
