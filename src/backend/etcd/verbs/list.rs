//! Lists held resources, by reading ranges of keys.
//!
//! The keys of a resource lie together: those of its grants, then those of requests, then
//! those of waiters. When a read ends among keys that are no grants, the next one begins at
//! the next resource, so a long queue is not read.

use tokio::time::Instant;

use crate::{
    backend::etcd::{
        core::Core,
        keys::{Part, key_after, range_end},
        revision::Revision,
    },
    lock::{
        BackendError, ResourceId,
        inspect::{
            Cursor, GRANTS_SHOWN_MAX, GrantView, LockView, Page, PageRequest, Selection,
        },
    },
};

/// After so many keys a page ends, though it may be empty.
const KEYS_READ_MAX: usize = 4_000;

impl Core {
    /// A page of the held resources. Its cursor is the name of the last resource that was
    /// looked at.
    pub(super) async fn list_page(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        let range = self.keys.named(&selection.name_prefix);
        let (mut from, end) = (range.clone().into_bytes(), range_end(&range));
        if let Some(after) = &page.after {
            let last = ResourceId::new(after).map_err(|_| BackendError::bad_cursor())?;
            from = from.max(range_end(&self.keys.resource(&last)));
        }
        let mut scan = Scan::new(selection, page);
        // What is told of a resource must have been so at one moment, so a resource whose
        // grants take several reads is read at one revision. Revision 0 is the newest one.
        let (mut revision, mut keys_read) = (Revision::default(), 0);
        while from < end {
            let found = self.read_range(from, end.clone(), revision, until).await?;
            let pairs = found.get.kvs();
            for pair in pairs {
                let Some((resource, part)) = self.keys.read(pair.key()) else { continue };
                if part == Part::Other {
                    continue;
                }
                if !scan.begin(&resource) {
                    return Ok(scan.page(true));
                }
                if matches!(part, Part::Holder | Part::Reader(_))
                    && let Some(grant) = self.own_view(&resource, pair)
                {
                    scan.add(grant);
                }
            }
            let Some(last) = pairs.last().filter(|_| found.get.more()) else { break };
            let (next, among_readers) = self.next_read(last.key());
            from = next;
            if !among_readers {
                revision = Revision::default();
            } else if revision == Revision::default() {
                revision = found.revision;
            }
            keys_read += pairs.len();
            if keys_read >= KEYS_READ_MAX && scan.can_end(among_readers) {
                return Ok(scan.page(from < end));
            }
        }
        Ok(scan.page(false))
    }

    /// Where a read begins after one that ended with this key, and whether that is among the
    /// shared grants of a resource.
    pub(super) fn next_read(&self, last: &[u8]) -> (Vec<u8>, bool) {
        match self.keys.read(last) {
            Some((_, Part::Reader(_))) => (key_after(last), true),
            // Somebody else's key, before those of the grants.
            Some((resource, _)) if last < self.keys.holder(&resource).as_bytes() => {
                (key_after(last), false)
            }
            _ => (self.keys.behind(last), false),
        }
    }
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

    /// The page; `is_more` if further resources are to be read.
    fn page(mut self, is_more: bool) -> Page<LockView> {
        self.finish();
        let next = self.done.filter(|_| is_more);
        Page { items: self.items, next: next.map(|last| Cursor::from(last.as_str())) }
    }
}
