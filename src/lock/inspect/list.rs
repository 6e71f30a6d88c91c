//! Reads the locks of a store: one, those of a scope, or the waiters of one.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Inspect, Inspected, LockView, Page, PageRequest, Scope, Selection, WaiterView};
use crate::{BackendError, Feature, LockError, ResourceId, Store, observe::Verb};

/// After this time no further part of a page is read. What was found by then is the page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(1);
/// The pause after a page is this many times as long as the page, so that lists delay locks
/// little.
const REST_FACTOR: u32 = 40;
/// The longest rest after a page. A hundred pages of 1,000 locks take up to eight seconds longer.
const REST_MAX: Duration = Duration::from_millis(80);

/// A request for a page of held locks.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The resources.
    pub scope: Scope,
    /// Only grants of holders with this prefix. Resources without one are left out.
    pub holder_prefix: String,
    /// The page.
    pub page: PageRequest,
}

impl Store {
    /// Returns one resource, held or not, with a page of its grants.
    pub async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
    ) -> Result<Inspected, LockError> {
        self.get_by(resource, grants, self.until()).await
    }

    /// The same, within a call that must end by `until`.
    pub(super) async fn get_by(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, LockError> {
        let _call = self.0.calls.token();
        let inspect = self.backend_to_inspect()?;
        self.read(until, inspect.get(resource, grants, until)).await
    }

    /// Lists who waits for a resource.
    pub async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
    ) -> Result<Page<WaiterView>, LockError> {
        let _call = self.0.calls.token();
        let until = self.until();
        let inspect = self.backend_to_inspect()?;
        self.read(until, inspect.waiters(resource, page, until)).await
    }

    /// Lists held resources. One page at a time is read from a store, and then none for a
    /// while, so that lists do not delay its locks: [`LockError::Overloaded`] if other pages
    /// leave no time. A page that takes more than a second ends early, perhaps empty.
    pub async fn list(&self, listing: &Listing) -> Result<Page<LockView>, LockError> {
        self.list_by(listing, self.until()).await
    }

    /// The same, within a call that must end by `until`.
    pub(super) async fn list_by(
        &self,
        listing: &Listing,
        until: Instant,
    ) -> Result<Page<LockView>, LockError> {
        let _call = self.0.calls.token();
        let inspect = self.backend_to_inspect()?;
        let turn = async {
            let next = self.0.list_turn.lock().await;
            sleep_until(*next).await;
            next
        };
        let mut next = timeout_at(until, turn).await.map_err(|_| LockError::Overloaded)?;
        let begun = Instant::now();
        // In case the caller leaves before the page is read.
        *next = begun + REST_MAX;
        let page = list(self, inspect, listing, until).await;
        *next = Instant::now() + (begun.elapsed() * REST_FACTOR).min(REST_MAX);
        page
    }

    /// Reads, within a limit of time.
    async fn read<T>(
        &self,
        until: Instant,
        reading: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, LockError> {
        self.0.bounded(Verb::Read, until, reading).await.map_err(LockError::of_read)
    }

    fn backend_to_inspect(&self) -> Result<&dyn Inspect, LockError> {
        const PROBLEM: &str = "this store cannot be inspected";
        self.must_have(Feature::Inspection, PROBLEM)?;
        self.0.backend.inspect().ok_or(LockError::Unsupported(PROBLEM.into()))
    }
}

/// Reads pages of the backend until there is one page of wanted locks.
async fn list(
    store: &Store,
    inspect: &dyn Inspect,
    listing: &Listing,
    until: Instant,
) -> Result<Page<LockView>, LockError> {
    let selection = Selection {
        name_prefix: listing.scope.name_prefix().to_owned(),
        holder_prefix: listing.holder_prefix.clone(),
    };
    let ends_at = until.min(Instant::now() + PAGE_TIME_MAX);
    let mut wanted = listing.page.clone();
    let mut items = Vec::new();
    loop {
        let page = match store.read(until, inspect.list(&selection, &wanted, until)).await {
            // The locks found before it are a page, too.
            Err(_) if wanted.after != listing.page.after && Instant::now() >= ends_at => {
                return Ok(Page { items, next: wanted.after });
            }
            page => page?,
        };
        for lock in page.items {
            if listing.scope.has(&lock.resource) {
                wanted.limit = wanted.limit.saturating_sub(1);
                wanted.bytes_max = wanted.bytes_max.saturating_sub(lock.size());
                items.push(lock);
            }
        }
        wanted.after = page.next;
        let is_full = wanted.limit == 0 || wanted.bytes_max == 0;
        if wanted.after.is_none() || is_full || Instant::now() >= ends_at {
            return Ok(Page { items, next: wanted.after });
        }
    }
}
