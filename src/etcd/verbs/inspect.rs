//! What everybody may see of the locks: one resource, and who waits for it. For lists of
//! resources see `list`, for changes `watch`. Nothing here is written, and reads need no raft
//! entry.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{GetOptions, GetResponse, KeyValue, TxnOp};
use futures_util::future::join_all;
use leasehold_lock::{
    BackendError, LockId, Mode, ResourceId,
    inspect::{
        GrantPage, GrantView, Inspect, Inspected, LockView, Mirror, Page, PageRequest,
        Selection, WaiterView,
    },
};
use tokio::time::{Duration, Instant};

use crate::{
    client::{
        failure::Failure,
        reads::{Found, Reads},
    },
    etcd::Etcd,
    grants::find::Held,
    keys::{EntryId, Part, range_end},
    lease::leases::Leases,
    revision::Revision,
    waiter_record::WaiterRecord,
};

/// How many keys are read at a time with their values: as many as always fit into the 4 MiB
/// of an answer, however long names and labels are.
pub(super) const PAGE_KEYS: usize = 400;
/// For how many grants of a page the remaining time is read. Each takes a call.
const REMAINING_MAX: usize = 8;
/// etcd reports whole seconds, and another second is subtracted to be safe.
const REMAINING_SHORT_MAX: Duration = Duration::from_secs(2);
/// How long those calls may take.
const REMAINING_TIMEOUT: Duration = Duration::from_secs(1);

/// Shows the locks of a store to everybody who may see them.
pub(crate) struct Inspection {
    pub(crate) etcd: Arc<Etcd>,
    /// Reads of its own, for which those of the locks need not wait.
    pub(crate) reads: Arc<Reads>,
    pub(crate) leases: Arc<Leases>,
    /// How long a step of a watch may take.
    pub(crate) step: Duration,
}

#[async_trait]
impl Inspect for Inspection {
    /// The grants come in the order of their IDs. Their keys' names are no cursors, because
    /// they are made of the lock IDs. So all grants of the resource are read for each page.
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        let page = GrantPage::read(grants)?;
        let (views, published, waiters) = self.read_resource(resource, until).await?;
        let grants_total = views.len();
        let Page { items: mut views, next } = page.take(views, |(grant, _)| grant.id);
        if views.len() <= REMAINING_MAX {
            self.add_remaining(&mut views, until).await;
        }
        let grants = views.into_iter().map(|(grant, _)| grant).collect();
        Ok(Inspected {
            lock: LockView { resource: resource.clone(), grants, grants_total },
            remaining_short_max: REMAINING_SHORT_MAX,
            published,
            waiters,
            next,
        })
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        self.list_page(selection, page, until).await
    }

    /// The whole queue is read for each page, because its order is not that of its keys.
    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        let after = match &page.after {
            None => None,
            Some(after) => Some(read_place(after).ok_or_else(BackendError::bad_cursor)?),
        };
        let mut waiters = self.read_queue(resource, until).await?;
        waiters.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let is_wanted = |place: &Place| after.as_ref().is_none_or(|after| place > after);
        let mut waiters = (1..).zip(waiters).filter(|(_, (place, _))| is_wanted(place));
        let (mut items, mut last) = (Vec::new(), None);
        for (position, (place, record)) in waiters.by_ref().take(page.limit) {
            items.push(WaiterView {
                position,
                holder: record.holder(),
                mode: if place.1.shared { Mode::Shared } else { Mode::Exclusive },
                since_unix_ms: record.since_unix_ms,
            });
            last = Some(place);
        }
        let next = waiters.next().and(last).map(|place| write_place(&place).into());
        Ok(Page { items, next })
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        self.keep_mirror(mirror).await.into()
    }
}

impl Inspection {
    /// All grants of a resource, each with its lease, a published lock ID, and the number of its
    /// waiters, at one revision.
    async fn read_resource(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<(Vec<(GrantView, i64)>, Option<LockId>, usize), Failure> {
        let (first, queue) = (self.etcd.keys.holder(resource), self.etcd.keys.queue(resource));
        let end = range_end(&first);
        let limit = i64::try_from(PAGE_KEYS).unwrap_or(i64::MAX);
        let options = GetOptions::new().with_range(end.clone()).with_limit(limit);
        let gets = vec![
            TxnOp::get(first, Some(options)),
            TxnOp::get(queue, Some(GetOptions::new().with_prefix().with_count_only())),
        ];
        let (revision, found) = self.etcd.connection.read(gets, until).await?;
        let Ok([get, queue]) = <[GetResponse; 2]>::try_from(found) else {
            return Err(Failure::Unknown("etcd answered something else".into()));
        };
        let waiters = usize::try_from(queue.count()).unwrap_or(0);
        let published = get.kvs().first().and_then(|pair| self.published(resource, pair));
        let mut page = Found { revision, get };
        let mut views = Vec::new();
        loop {
            let pairs = page.get.kvs().iter();
            views.extend(pairs.map(|pair| (self.view(resource, pair), pair.lease())));
            let Some(from) = page.next() else {
                return Ok((views, published, waiters));
            };
            page = self.read_range(from, end.clone(), revision, PAGE_KEYS, until).await?;
        }
    }

    /// What is shown of a key in the range of a resource's grants.
    fn view(&self, resource: &ResourceId, pair: &KeyValue) -> GrantView {
        self.own_view(resource, pair).unwrap_or_else(|| {
            let is_exclusive = pair.key() == self.etcd.keys.holder(resource).as_bytes();
            let mode = if is_exclusive { Mode::Exclusive } else { Mode::Shared };
            GrantView { foreign: true, ..GrantView::unknown(mode) }
        })
    }

    /// The lock ID of a grant, if its request published that.
    fn published(&self, resource: &ResourceId, pair: &KeyValue) -> Option<LockId> {
        Held::of(&self.etcd.keys, resource, pair)?.record.published()
    }

    /// What is shown of a grant, if leasehold made it.
    pub(super) fn own_view(&self, resource: &ResourceId, pair: &KeyValue) -> Option<GrantView> {
        let record = Held::of(&self.etcd.keys, resource, pair)?.record;
        record.id().map(|_| record.view())
    }

    /// Adds how long grants last, as far as that can be had.
    async fn add_remaining(&self, views: &mut [(GrantView, i64)], until: Instant) {
        let until = until.min(Instant::now() + REMAINING_TIMEOUT);
        let asked = views.iter_mut().filter(|(grant, lease)| !grant.foreign && *lease != 0);
        let added = asked.map(|(grant, lease)| async {
            grant.remaining = self.leases.remaining(*lease, until).await;
        });
        join_all(added).await;
    }

    /// Reads the first keys of a range at this revision; at the newest one if it is 0.
    pub(super) async fn read_range(
        &self,
        from: Vec<u8>,
        end: Vec<u8>,
        revision: Revision,
        keys_max: usize,
        until: Instant,
    ) -> Result<Found, Failure> {
        let options = GetOptions::new().with_range(end).with_revision(revision.to_etcd());
        self.reads.range(from, options, keys_max.min(PAGE_KEYS), until).await
    }

    /// All waiters for a resource at one revision, in no order.
    async fn read_queue(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Vec<(Place, WaiterRecord)>, Failure> {
        let range = self.etcd.keys.queue(resource);
        let end = range_end(&range);
        let (mut from, mut revision) = (range.into_bytes(), Revision::default());
        let mut waiters = Vec::new();
        loop {
            let found = self.read_range(from, end.clone(), revision, PAGE_KEYS, until).await?;
            if revision == Revision::default() {
                revision = found.revision;
            }
            for pair in found.get.kvs() {
                if let Part::Entry(entry) = self.etcd.keys.part(resource, pair.key()) {
                    let entered = Revision::from_etcd(pair.create_revision());
                    waiters.push(((entered, entry), WaiterRecord::decode(pair.value())));
                }
            }
            match found.next() {
                Some(next) => from = next,
                None => return Ok(waiters),
            }
        }
    }
}

/// A waiter's place in the order of a queue, as `queue::mirror` orders it.
type Place = (Revision, EntryId);

fn write_place((entered, entry): &Place) -> String {
    format!("{}:{entry}", entered.0)
}

fn read_place(cursor: &str) -> Option<Place> {
    let (entered, entry) = cursor.split_once(':')?;
    Some((Revision(entered.parse().ok()?), EntryId::read(entry.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_queue_is_read_back_as_written() {
        for shared in [false, true] {
            let place = (Revision(7), EntryId { session: "5e0c.1".into(), seq: 31, shared });
            assert_eq!(read_place(&write_place(&place)), Some(place));
        }
    }

    #[test]
    fn a_place_that_was_made_up_is_none_or_some_other_place() {
        for cursor in [
            "",
            "7",
            "7:s",
            "7:s-1f",
            "7:s-00000000000000xx",
            "x:s-000000000000001f",
            "-7:s-000000000000001f",
        ] {
            assert_eq!(read_place(cursor), None, "{cursor}");
        }
    }
}
