//! Inspection of locks.
//!
//! A list walks through all keys of the database with SCAN, because an index of held
//! resources would cost each lock commands. Nothing here writes.
//!
//! - `reads`: the functions that read; `seen`: their results; `cursors`: the positions in
//!   lists; `walk`: those in all keys; `open_slots`: what is between two nodes.
//! - `watch`: the poller of watches; `pace`: how often it reads.

use ::redis::{Cmd, from_redis_value};
use async_trait::async_trait;
use leasehold_lock::{
    BackendError, ResourceId,
    inspect::{
        GRANTS_SHOWN_MAX, Inspect, Inspected, LockView, Mirror, Page, PageRequest, Selection,
        WaiterView,
    },
};
use tokio::time::{Duration, Instant};

use self::{
    cursors::{After, Step, Ticket},
    reads::{FOUND_MAX, READ_MAX, RESOURCES_MAX, strange, unreadable},
    seen::Seen,
};
use super::{
    core::Core,
    library::Verb,
    reply::{read_holder, read_mode},
};

mod cursors;
mod open_slots;
mod pace;
mod reads;
pub(crate) mod seen;
mod walk;
mod watch;

/// The longest time of a page.
const READ_TIME_MAX: Duration = Duration::from_millis(500);

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
            let seen = self.router.see_more(resource, after, grants.limit, until).await?;
            let seen = seen.ok_or_else(unreadable)?;
            // All grants that were read may have expired.
            if seen.grants.is_empty() && seen.next.is_some() {
                after = seen.next;
                continue;
            }
            let Seen { grants_total, waiters, grants, next, published } = seen;
            let lock = LockView { resource: resource.clone(), grants, grants_total };
            let next = next.map(After::cursor);
            return Ok(Inspected {
                lock,
                remaining_short_max: Duration::ZERO,
                published,
                waiters,
                next,
            });
        }
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let at = page.after.as_deref().map_or(Ok(Step::default()), Step::read)?;
        // The same number whatever the page's limit, so that a page that begins within a step finds
        // the same step again.
        let (end, found) =
            self.router.scan(&at.begin, &selection.name_prefix, FOUND_MAX, until).await?;
        let found = at.rest(end.as_ref(), found);
        let first = found.get(..page.limit).unwrap_or(&found);
        let (mut items, mut size, mut done) = (Vec::new(), 0, 0_usize);
        let ends_at = Instant::now() + READ_TIME_MAX;
        'page: for some in first.chunks(RESOURCES_MAX) {
            let seen = self.router.see(some, None, GRANTS_SHOWN_MAX, until).await?;
            for (resource, seen) in some.iter().zip(seen) {
                if size >= page.bytes_max || done > 0 && Instant::now() >= ends_at {
                    break 'page;
                }
                let lock = self.router.select(resource.clone(), seen, selection, until).await?;
                done += 1;
                if !lock.grants.is_empty() {
                    size += lock.size();
                    items.push(lock);
                }
            }
        }
        let next = match found.get(done.saturating_sub(1)) {
            Some(last) if done < found.len() => Some(at.within(end, last)),
            _ => end.map(Step::from),
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
            // One more shows whether there is another page.
            request.arg(after).arg(most + 1);
        };
        let answer = self.router.run(Verb::Waiters, resource, arguments, until).await;
        let value = answer?.value;
        // Another client may have added a place with any bytes as its holder.
        let (before, found): (usize, Vec<(String, String, Vec<u8>)>) =
            from_redis_value(value).map_err(|_| strange())?;
        let is_last = found.len() <= most;
        let last = found.iter().take(most).next_back().filter(|_| !is_last);
        let next = last.map(|(ticket, ..)| Ticket::read(ticket)).transpose()?;
        let items = (before + 1..).zip(found.iter().take(most));
        let items = items.map(|(position, (_, mode, holder))| WaiterView {
            position,
            holder: str::from_utf8(holder).ok().and_then(read_holder),
            mode: read_mode(mode),
            since_unix_ms: None,
        });
        Ok(Page { items: items.collect(), next: next.map(Ticket::cursor) })
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        watch::watch(&self.router, self.settings.operation_timeout, mirror).await
    }
}
