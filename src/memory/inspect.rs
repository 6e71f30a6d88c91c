//! Inspection of the locks in memory.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_lock::{
    BackendError, Mode, ResourceId,
    inspect::{
        EndedGrant, GrantPage, GrantView, Inspect, Inspected, LockView, Mirror, Page,
        PageRequest, Selection, WaiterView,
    },
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use super::{
    Memory,
    changes::Changes,
    slot::{Slot, Ticket},
    swept::SweptTable,
};

/// How many resources are read at a time, so that the table is not locked for long.
const READ_MAX: usize = 1000;
/// How long changes are collected before they are reported to the mirror.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

#[async_trait]
impl Inspect for Memory {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        _: Instant,
    ) -> Result<Inspected, BackendError> {
        let page = GrantPage::read(grants)?;
        let found = self.table.read(|table, now| {
            let slot = table.slot(resource)?;
            let views = slot.holders.iter().map(|held| GrantView {
                remaining: Some(held.expires.saturating_duration_since(now)),
                ..held.view(slot.holders.mode())
            });
            let is_exclusive = slot.holders.mode() == Mode::Exclusive;
            let mut holders = slot.holders.iter().filter(|_| is_exclusive);
            let published = holders.find_map(super::holders::Held::published);
            Some((views.collect::<Vec<_>>(), published, slot.waiting()))
        });
        let Some((views, published, waiters)) = found else {
            let lock = LockView::free(resource.clone());
            return Ok(Inspected {
                lock,
                remaining_short_max: Duration::ZERO,
                published: None,
                waiters: 0,
                next: None,
            });
        };
        let grants_total = views.len();
        let Page { items, next } = page.take(views, |grant| grant.id);
        let lock = LockView { resource: resource.clone(), grants: items, grants_total };
        Ok(Inspected { lock, remaining_short_max: Duration::ZERO, published, waiters, next })
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        _: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let mut after = page.after.clone();
        let mut collected = Collected { selection, page, items: Vec::new(), size: 0 };
        while let Some(last) = collected.read(&self.table, after.as_deref()) {
            after = Some(last.as_str().into());
            if collected.is_full() {
                return Ok(Page { items: collected.items, next: after });
            }
            // Very many may not be selected.
            yield_now().await;
        }
        Ok(Page { items: collected.items, next: None })
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        _: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        let after = match &page.after {
            None => Ticket(0),
            Some(after) => Ticket(after.parse().map_err(|_| BackendError::bad_cursor())?),
        };
        Ok(self.table.read(|table, _| {
            let waiters = table.slot(resource).into_iter().flat_map(Slot::waiters);
            let mut waiters = (1..).zip(waiters).filter(|(_, (ticket, _))| *ticket > after);
            let (mut items, mut last) = (Vec::new(), after);
            for (position, (ticket, waiter)) in waiters.by_ref().take(page.limit) {
                last = ticket;
                items.push(WaiterView {
                    position,
                    holder: waiter.attempt.holder.clone(),
                    mode: waiter.attempt.mode,
                    since_unix_ms: Some(waiter.since_unix_ms),
                });
            }
            let next = waiters.next().map(|_| last.0.to_string().into());
            Page { items, next }
        }))
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        let mut subscriptions_changed = mirror.subscriptions_changed();
        let mut newest = mirror.newest_subscription();
        let changes = Arc::new(Changes::default());
        let _watching = Watching::new(&self.table, &changes);
        // Read after changes are recorded, so that none is missed.
        let everything = Selection::default();
        let mut page = PageRequest::first(READ_MAX);
        loop {
            match self.list(&everything, &page, Instant::now()).await {
                Err(error) => return error,
                Ok(found) => {
                    found.items.into_iter().for_each(|lock| mirror.set(lock, Vec::new()));
                    page.after = found.next;
                }
            }
            if page.after.is_none() {
                break;
            }
            yield_now().await;
        }
        loop {
            mirror.complete_up_to(newest);
            tokio::select! {
                () = changes.noted.notified() => {}
                // A new watch begins, which must see changes that were not reported yet.
                _ = subscriptions_changed.changed() => {}
            }
            newest = mirror.newest_subscription();
            for (resource, ended) in changes.take() {
                self.report(mirror, &resource, ended);
            }
            sleep(REPORT_INTERVAL).await;
        }
    }
}

impl Memory {
    /// Reports the present state of a resource to the mirror.
    fn report(&self, mirror: &Mirror, resource: &ResourceId, ended: Vec<EndedGrant>) {
        let lock = self.table.read(|table, _| match table.slot(resource) {
            None => LockView::free(resource.clone()),
            Some(slot) => view(resource, slot, &Selection::default()),
        });
        mirror.set(lock, ended);
    }
}

/// Records the changes of the table until dropped.
struct Watching<'a> {
    table: &'a SweptTable,
    changes: &'a Arc<Changes>,
}

impl<'a> Watching<'a> {
    fn new(table: &'a SweptTable, changes: &'a Arc<Changes>) -> Self {
        table.with(|table, _| table.ledger.watch(Arc::clone(changes)));
        Self { table, changes }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.table.with(|table, _| table.ledger.unwatch(self.changes));
    }
}

/// The items of a page.
struct Collected<'a> {
    selection: &'a Selection,
    page: &'a PageRequest,
    items: Vec<LockView>,
    size: usize,
}

impl Collected<'_> {
    fn is_full(&self) -> bool {
        self.items.len() >= self.page.limit || self.size >= self.page.bytes_max
    }

    /// Adds resources that come after `after`. Returns the last resource that was read, unless
    /// there are no more.
    fn read(&mut self, table: &SweptTable, after: Option<&str>) -> Option<ResourceId> {
        let selection = self.selection;
        table.read(|table, _| {
            let mut held = table.held(&selection.name_prefix, after).take(READ_MAX);
            let mut last = None;
            while !self.is_full()
                && let Some((resource, slot)) = held.next()
            {
                last = Some(resource.clone());
                let lock = view(resource, slot, selection);
                if !lock.grants.is_empty() {
                    self.size += lock.size();
                    self.items.push(lock);
                }
            }
            last
        })
    }
}

fn view(resource: &ResourceId, slot: &Slot, selection: &Selection) -> LockView {
    let mode = slot.holders.mode();
    let held = slot.holders.iter();
    let selected = held.filter(|held| selection.has_holder(held.holder.as_ref()));
    LockView::new(resource.clone(), selected.map(|held| held.view(mode)))
}
