//! Listing the locks of a store.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Inspect, Inspected, LockView, Page, PageRequest, Selection, WaiterView};
use crate::lock::{BackendError, Feature, LockError, ResourceId, Store, settle::bounded};

/// After this time no further part of a page is read. What was found by then is the page.
const PAGE_TIME_MAX: Duration = Duration::from_secs(1);
/// A page is followed by a rest so many times as long, so that lists delay locks little.
const REST_FACTOR: u32 = 8;
/// The longest rest after a page. A hundred pages of 1,000 locks take two seconds longer.
const REST_MAX: Duration = Duration::from_millis(20);

/// Some of the resources of a store: those whose name begins with a prefix, and of these the
/// ones that a condition accepts.
#[derive(Clone)]
pub struct Scope {
    prefix: Arc<str>,
    /// The single resource, if it has no other.
    only: Option<ResourceId>,
    accepts: Arc<dyn Fn(&ResourceId) -> bool + Send + Sync>,
}

impl Scope {
    /// The resources whose name begins with `prefix`; all of them if it is empty.
    #[must_use]
    pub fn prefix(prefix: &str) -> Self {
        Self::of(prefix, |_| true)
    }

    /// The resources whose name begins with `prefix` and that `accepts` accepts.
    pub fn of(
        prefix: &str,
        accepts: impl Fn(&ResourceId) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { prefix: prefix.into(), only: None, accepts: Arc::new(accepts) }
    }

    /// This resource alone.
    #[must_use]
    pub fn resource(resource: ResourceId) -> Self {
        let only = resource.clone();
        let scope = Self::of(resource.as_str(), move |other| *other == only);
        Self { only: Some(resource), ..scope }
    }

    /// The single resource, if it has no other.
    pub(super) fn only(&self) -> Option<&ResourceId> {
        self.only.as_ref()
    }

    /// What the names of its resources begin with.
    pub(super) fn name_prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the resource is one of them.
    #[must_use]
    pub fn has(&self, resource: &ResourceId) -> bool {
        resource.as_str().starts_with(&*self.prefix) && (self.accepts)(resource)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.prefix).finish_non_exhaustive()
    }
}

/// Asks for a page of the locks that are held.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Which resources.
    pub scope: Scope,
    /// Only grants whose holder begins so. Resources without one are left out.
    pub holder_prefix: String,
    /// Which page.
    pub page: PageRequest,
}

impl Store {
    /// Tells of one resource, held or not, with a page of its grants.
    pub async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
    ) -> Result<Inspected, LockError> {
        let _call = self.call();
        let until = self.until();
        let inspect = self.backend_to_inspect()?;
        read(until, inspect.get(resource, grants, until)).await
    }

    /// Lists who waits for a resource.
    pub async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
    ) -> Result<Page<WaiterView>, LockError> {
        let _call = self.call();
        let until = self.until();
        let inspect = self.backend_to_inspect()?;
        read(until, inspect.waiters(resource, page, until)).await
    }

    /// Lists held resources. One page at a time is read from a store, and then none for a
    /// while, so that lists do not delay its locks: [`LockError::Overloaded`] if other pages leave no time. A page that
    /// takes more than a second ends early, perhaps empty.
    pub async fn list(&self, listing: &Listing) -> Result<Page<LockView>, LockError> {
        let _call = self.call();
        let until = self.until();
        let inspect = self.backend_to_inspect()?;
        let turn = async {
            let next = self.list_turn().lock().await;
            sleep_until(*next).await;
            next
        };
        let mut next = timeout_at(until, turn).await.map_err(|_| LockError::Overloaded)?;
        let begun = Instant::now();
        let page = list(inspect, listing, until).await;
        *next = Instant::now() + (begun.elapsed() * REST_FACTOR).min(REST_MAX);
        page
    }

    fn backend_to_inspect(&self) -> Result<&dyn Inspect, LockError> {
        const PROBLEM: &str = "this store cannot be inspected";
        self.must_have(Feature::Inspection, PROBLEM)?;
        self.inspect().ok_or(LockError::Unsupported(PROBLEM.into()))
    }
}

/// Bounds a read. It changes nothing, so there is no unknown outcome.
async fn read<T>(
    until: Instant,
    reading: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, LockError> {
    bounded(until, reading).await.map_err(|error| match error {
        BackendError::Unknown(why) => LockError::StoreUnavailable(why),
        error => error.into(),
    })
}

/// Reads pages of the backend until there is one page of what is wanted.
async fn list(
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
        let page = match read(until, inspect.list(&selection, &wanted, until)).await {
            // What was found before it is a page too.
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
