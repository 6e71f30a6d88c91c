//! Lists held resources, by reading ranges of keys.

use leasehold_lock::{
    BackendError, ResourceId,
    inspect::{Cursor, GRANTS_SHOWN_MAX, GrantView, LockView, Page, PageRequest, Selection},
};
use tokio::time::{Duration, Instant};

use super::{
    inspect::{Inspection, PAGE_KEYS},
    walk::Walk,
};
use crate::{
    keys::{Part, range_end},
    revision::Revision,
};

/// After so many keys a page ends, though it may be empty.
const KEYS_READ_MAX: usize = 4_000;
/// After so much time too.
const READ_TIME_MAX: Duration = Duration::from_millis(500);
/// A read asks for so many keys at least, because not each of them is what is looked for.
const KEYS_MIN: usize = 50;

impl Inspection {
    /// A page of the held resources. Its cursor is the depth of the walk and the name of the
    /// last resource that was looked at.
    pub(super) async fn list_page(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let range = self.etcd.keys.named(&selection.name_prefix);
        let (mut from, end, mut depth) = (range.clone().into_bytes(), range_end(&range), 0);
        if let Some(after) = &page.after {
            let (at, last) = read_cursor(after).ok_or_else(BackendError::bad_cursor)?;
            from = from.max(range_end(&self.etcd.keys.resource(&last)));
            depth = at;
        }
        let mut walk = Walk::new(&self.etcd.keys, from, end, depth);
        let mut scan = Scan::new(selection, page);
        // A resource must be reported as it was at one moment, so one whose grants take
        // several reads is read at one revision. Revision 0 is the newest one.
        let (mut revision, mut keys_read) = (Revision::default(), 0);
        let ends_at = Instant::now() + READ_TIME_MAX;
        while let Some((from, to)) = walk.range() {
            let is_few = selection.holder_prefix.is_empty() && revision == Revision::default();
            let keys_max = if is_few { scan.wanted().max(KEYS_MIN) } else { PAGE_KEYS };
            let found = self.read_range(from, to, revision, keys_max, until).await?;
            let pairs = found.get.kvs();
            let among_readers = walk.advance(pairs, found.get.more());
            for pair in pairs {
                let Some((resource, part)) = self.etcd.keys.read(pair.key()) else { continue };
                if part == Part::Other {
                    continue;
                }
                if !scan.begin(&resource) {
                    return Ok(scan.page(Some(walk.depth())));
                }
                if matches!(part, Part::Holder | Part::Reader(_))
                    && let Some(grant) = self.own_view(&resource, pair)
                {
                    scan.add(grant);
                }
            }
            if !among_readers {
                revision = Revision::default();
            } else if revision == Revision::default() {
                revision = found.revision;
            }
            keys_read += pairs.len();
            let is_long = keys_read >= KEYS_READ_MAX || Instant::now() >= ends_at;
            if is_long && scan.can_end(among_readers) {
                let is_more = walk.range().is_some();
                return Ok(scan.page(is_more.then_some(walk.depth())));
            }
        }
        Ok(scan.page(None))
    }
}

fn read_cursor(cursor: &str) -> Option<(usize, ResourceId)> {
    let (depth, name) = cursor.split_once(':')?;
    Some((depth.parse().ok()?, ResourceId::new(name).ok()?))
}

/// The items of a page.
struct Scan<'a> {
    selection: &'a Selection,
    page: &'a PageRequest,
    items: Vec<LockView>,
    size: usize,
    /// The resource whose keys are being read.
    reading: Option<LockView>,
    /// The last resource of which all grants were read.
    done: Option<ResourceId>,
}

impl<'a> Scan<'a> {
    fn new(selection: &'a Selection, page: &'a PageRequest) -> Self {
        Self { selection, page, items: Vec::new(), size: 0, reading: None, done: None }
    }

    /// How many resources are still wanted, and the one that shows that there are more.
    fn wanted(&self) -> usize {
        self.page.limit.saturating_sub(self.items.len()) + 1
    }

    /// Begins with another resource, if it is another one. `false` if the page ends before.
    fn begin(&mut self, resource: &ResourceId) -> bool {
        if self.reading.as_ref().is_some_and(|lock| lock.resource == *resource) {
            return true;
        }
        self.finish();
        if self.items.len() >= self.page.limit || self.size >= self.page.bytes_max {
            return false;
        }
        self.reading = Some(LockView::free(resource.clone()));
        true
    }

    /// Adds a grant of the resource that is being read, if it is wanted.
    fn add(&mut self, grant: GrantView) {
        let Some(lock) = &mut self.reading else { return };
        if self.selection.has_holder(grant.holder.as_ref()) {
            lock.grants_total += 1;
            if lock.grants.len() < GRANTS_SHOWN_MAX {
                lock.grants.push(grant);
            }
        }
    }

    fn finish(&mut self) {
        let Some(lock) = self.reading.take() else { return };
        self.done = Some(lock.resource.clone());
        if !lock.grants.is_empty() {
            self.size += lock.size();
            self.items.push(lock);
        }
    }

    /// Whether the page can end here, with a resource after which the next one can begin. A
    /// name of another application's keys is none. A resource that is only partly read is
    /// left to the next page, unless it is the first one.
    fn can_end(&mut self, among_readers: bool) -> bool {
        if among_readers && self.done.is_some() {
            self.reading = None;
        }
        self.done.is_some() || !among_readers && self.reading.is_some()
    }

    /// The page. If further resources are to be read, the walk has this depth there.
    fn page(mut self, next_depth: Option<usize>) -> Page<LockView> {
        self.finish();
        let next = next_depth.zip(self.done);
        let cursor = |(depth, last)| Cursor::from(format!("{depth}:{last}"));
        Page { items: self.items, next: next.map(cursor) }
    }
}
