//! Lists held resources, by reading ranges of keys.
//!
//! The keys of a resource lie together: those of its grants, then those of requests, then
//! those of waiters. When a read ends among keys that are no grants, the next one begins at
//! the next resource, so a long queue is not read.

use etcd_client::GetOptions;
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        client::failure::Failure,
        core::Core,
        keys::{Part, range_end},
        revision::Revision,
        verbs::inspect::{PAGE_KEYS, after, bad_cursor},
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
            let last = ResourceId::new(after).map_err(|_| bad_cursor())?;
            from = from.max(range_end(&self.keys.resource(&last)));
        }
        let mut scan = Scan::new(selection, page);
        // What is told of a resource must have been so at one moment, so a resource whose
        // grants take several reads is read at one revision. Revision 0 is the newest one.
        let (mut revision, mut keys_read) = (Revision::default(), 0);
        while from < end {
            let options = GetOptions::new().with_range(end.clone());
            let options = options.with_revision(revision.to_etcd());
            let found = self.looks.range(from, options, PAGE_KEYS, until).await;
            let found = found.map_err(Failure::unavailable)?;
            let pairs = found.get.kvs();
            let mut last_part = Part::Other;
            for pair in pairs {
                let (resource, part) = match self.keys.read(pair.key()) {
                    Some((resource, part)) if part != Part::Other => (resource, part),
                    _ => {
                        last_part = Part::Other;
                        continue;
                    }
                };
                if !scan.begin(&resource) {
                    return Ok(scan.page(true));
                }
                if matches!(part, Part::Holder | Part::Reader(_)) {
                    self.own_view(&resource, pair)
                        .into_iter()
                        .for_each(|grant| scan.add(grant));
                }
                last_part = part;
            }
            let Some(last) = pairs.last().filter(|_| found.get.more()) else { break };
            if matches!(last_part, Part::Reader(_)) {
                from = after(last.key());
                if revision == Revision::default() {
                    revision = found.revision;
                }
                continue;
            }
            from = self.keys.behind(last.key());
            revision = Revision::default();
            keys_read += pairs.len();
            if keys_read >= KEYS_READ_MAX && scan.has_read() {
                return Ok(scan.page(from < end));
            }
        }
        Ok(scan.page(false))
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

    /// Whether the page can end here: it has come to a resource after which the next one
    /// can begin. A name of another application's keys is none.
    fn has_read(&self) -> bool {
        self.reading.is_some() || self.done.is_some()
    }

    /// The page; `is_more` if further resources are to be read.
    fn page(mut self, is_more: bool) -> Page<LockView> {
        self.finish();
        let next = self.done.filter(|_| is_more);
        Page { items: self.items, next: next.map(|last| Cursor::from(last.as_str())) }
    }
}
