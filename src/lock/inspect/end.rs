//! Ending the grants of others, each by its public ID.

use std::{future::ready, time::Duration};

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::{Cursor, GrantView, Inspected, Listing, LockView, PageRequest, Scope};
use crate::{GrantId, LockError, ReleaseOf, ResourceId, Store, UnlockRequest, Violation};

/// After this time no further end is begun, and the answer says that there are more. The whole
/// call ends within `operationTimeout`.
const END_TIME_MAX: Duration = Duration::from_secs(4);
/// How many ends are under way at the same time, over all resources of a page.
const CONCURRENT_MAX: usize = 32;
/// How many grants are read at a time to find one by its ID.
const SEARCH_PAGE_SIZE: usize = 1000;

/// A request to end grants of any holder.
#[derive(Clone, Debug)]
pub struct EndRequest {
    /// The grants to end.
    pub of: EndOf,
    /// Only report which would be ended.
    pub dry_run: bool,
    /// How many grants at most, at least 1.
    pub limit: usize,
}

/// Which grants an [`EndRequest`] ends.
#[derive(Clone, Debug)]
pub enum EndOf {
    /// Those of one resource, also foreign ones, or only the one with this ID.
    Resource(ResourceId, Option<GrantId>),
    /// The grants of a list.
    Scope {
        /// Grants of these resources.
        scope: Scope,
        /// Grants of holders with this prefix.
        holder_prefix: String,
    },
}

/// The grants that were ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// With their resources.
    pub locks: Vec<LockView>,
    /// Whether there are or may be further ones.
    pub more: bool,
}

/// The outcome of the end of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOutcome {
    /// It has ended.
    Ended,
    /// It may have ended, or may still end.
    Unknown,
}

/// Called for each end as soon as its outcome is known, or known to be unknown.
pub type OnEnd<'a> = dyn Fn(&ResourceId, &GrantView, EndOutcome) + Send + Sync + 'a;

impl Store {
    /// Ends the grants that it lists, and none that was made since; but foreign grants of a
    /// resource have no ID and are ended together, by force. A grant that has ended by itself
    /// meanwhile is not reported. If some were ended and then the backend fails, the answer
    /// has those, with `more` set.
    pub async fn end(
        &self,
        request: &EndRequest,
        on_end: &OnEnd<'_>,
    ) -> Result<Ended, LockError> {
        let _call = self.0.calls.token();
        let mut ending = EndRun {
            store: self,
            request,
            on_end,
            left: request.limit,
            ends_at: Instant::now() + END_TIME_MAX,
            until: self.until(),
            is_held: false,
            failure: Mutex::default(),
            ended: Ended::default(),
        };
        if let Err(error) = ending.run().await {
            ending.fail(error);
        }
        ending.conclude()
    }
}

/// The grants that a request has ended so far, and what stops it: its limit, the time, or a
/// failure.
struct EndRun<'a> {
    store: &'a Store,
    request: &'a EndRequest,
    on_end: &'a OnEnd<'a>,
    left: usize,
    ends_at: Instant,
    /// When the call must have ended.
    until: Instant,
    /// Whether a grant was seen, wanted or not.
    is_held: bool,
    failure: Mutex<Option<LockError>>,
    ended: Ended,
}

/// One call that ends grants.
struct End {
    resource: ResourceId,
    of: ReleaseOf,
    /// The grants that it ends.
    grants: Vec<GrantView>,
}

/// A page of grants to end.
struct Found {
    ends: Vec<End>,
    /// Whether there are grants, wanted or not.
    is_held: bool,
    /// Whether there are grants that this page cannot end.
    left_out: bool,
    next: Option<Cursor>,
}

impl EndRun<'_> {
    async fn run(&mut self) -> Result<(), LockError> {
        let mut page = PageRequest::first(self.left);
        loop {
            let found = find(self.store, &self.request.of, &page, self.until).await?;
            self.is_held |= found.is_held;
            self.ended.more |= found.left_out;
            self.end_page(found.ends).await;
            page.after = found.next;
            if page.after.is_none() {
                return Ok(());
            }
            if self.left == 0 || self.must_stop() {
                self.ended.more = true;
                return Ok(());
            }
            page.limit = self.left;
        }
    }

    async fn end_page(&mut self, mut ends: Vec<End>) {
        let found = ends.len();
        ends.truncate(self.left);
        let this = &*self;
        let tried: Vec<_> = stream::iter(ends)
            .take_while(|_| ready(!this.must_stop()))
            .map(|end| async move {
                let has_ended = this.request.dry_run || this.end(&end).await;
                (end, has_ended)
            })
            .buffered(CONCURRENT_MAX)
            .collect()
            .await;
        self.ended.more |= tried.len() < found;
        for (end, has_ended) in tried {
            if has_ended {
                self.note(end);
            }
        }
    }

    fn must_stop(&self) -> bool {
        Instant::now() >= self.ends_at || self.failure.lock().is_some()
    }

    async fn end(&self, end: &End) -> bool {
        let request = UnlockRequest { resource: end.resource.clone(), of: end.of.clone() };
        let outcome = match self.store.unlock_by(request, self.until).await {
            Ok(()) => EndOutcome::Ended,
            // It has ended by itself.
            Err(LockError::NotFound { .. }) if !self.has_one_wanted() => return false,
            Err(error) => {
                let is_unknown = matches!(error, LockError::OutcomeUnknown(_));
                self.fail(error);
                if !is_unknown {
                    return false;
                }
                EndOutcome::Unknown
            }
        };
        for grant in &end.grants {
            (self.on_end)(&end.resource, grant, outcome);
        }
        outcome == EndOutcome::Ended
    }

    /// Whether one grant is wanted by its ID, so that its end answers the request.
    fn has_one_wanted(&self) -> bool {
        matches!(self.request.of, EndOf::Resource(_, Some(_)))
    }

    /// Keeps the failure to report: an end of unknown outcome takes precedence over one that
    /// was not carried out.
    fn fail(&self, error: LockError) {
        let mut failure = self.failure.lock();
        let is_unknown = matches!(error, LockError::OutcomeUnknown(_));
        if failure.is_none() || is_unknown {
            *failure = Some(error);
        }
    }

    /// Adds grants to those that were ended, beside others of the same resource.
    fn note(&mut self, End { resource, grants, .. }: End) {
        self.left = self.left.saturating_sub(grants.len());
        let locks = &mut self.ended.locks;
        if locks.last().is_none_or(|last| last.resource != resource) {
            locks.push(LockView::free(resource));
        }
        if let Some(lock) = locks.last_mut() {
            lock.grants_total += grants.len();
            lock.grants.extend(grants);
        }
    }

    fn conclude(self) -> Result<Ended, LockError> {
        let has_ended_some = !self.ended.locks.is_empty();
        if let Some(error) = self.failure.into_inner() {
            if !has_ended_some {
                return Err(error);
            }
            warn!(%error, "not all grants could be ended");
            return Ok(Ended { more: true, ..self.ended });
        }
        match self.request.of {
            EndOf::Resource(_, id) if !has_ended_some && !self.ended.more => {
                Err(LockError::NotFound { held: self.is_held && id.is_some() })
            }
            _ => Ok(self.ended),
        }
    }
}

/// Reads a page of grants to end.
async fn find(
    store: &Store,
    of: &EndOf,
    page: &PageRequest,
    until: Instant,
) -> Result<Found, LockError> {
    match of {
        EndOf::Resource(resource, None) => {
            of_resource(store.get_by(resource, page, until).await?)
        }
        EndOf::Resource(resource, Some(id)) => {
            let page = PageRequest { limit: SEARCH_PAGE_SIZE, ..page.clone() };
            let mut found = store.get_by(resource, &page, until).await?;
            let is_held = found.lock.grants_total > 0;
            found.lock.grants.retain(|grant| grant.id == Some(*id));
            let ends = by_ids(found.lock);
            let next = found.next.filter(|_| ends.is_empty());
            Ok(Found { ends, is_held, left_out: false, next })
        }
        EndOf::Scope { scope, holder_prefix } => {
            let listing = Listing {
                scope: scope.clone(),
                holder_prefix: holder_prefix.clone(),
                page: page.clone(),
            };
            let found = store.list_by(&listing, until).await?;
            Ok(Found {
                is_held: !found.items.is_empty(),
                left_out: found.items.iter().any(|lock| lock.grants_total > lock.grants.len()),
                ends: found.items.into_iter().flat_map(by_ids).collect(),
                next: found.next,
            })
        }
    }
}

/// Ends the grants of a page of a resource by their IDs. Foreign grants have none: they are
/// ended together, by force, and only where nobody else holds the resource.
fn of_resource(found: Inspected) -> Result<Found, LockError> {
    let Inspected { lock, next, .. } = found;
    let is_held = lock.grants_total > 0;
    let with_id = lock.grants.iter().filter(|grant| grant.id.is_some()).count();
    if with_id > 0 || lock.grants.is_empty() {
        let left_out = with_id < lock.grants.len();
        return Ok(Found { ends: by_ids(lock), is_held, left_out, next });
    }
    if lock.grants_total > lock.grants.len() {
        return Err(Violation::new(
            "limit",
            "is too low: grants without an ID end together; raise it, or unlock the resource \
             by force",
        )
        .into());
    }
    let LockView { resource, grants, .. } = lock;
    let ends = vec![End { resource, of: ReleaseOf::Anyone, grants }];
    Ok(Found { ends, is_held, left_out: false, next: None })
}

/// Ends each grant by its ID, and no successor.
fn by_ids(LockView { resource, grants, .. }: LockView) -> Vec<End> {
    let end = |grant: GrantView| {
        let of = ReleaseOf::Id(grant.id?);
        Some(End { resource: resource.clone(), of, grants: vec![grant] })
    };
    grants.into_iter().filter_map(end).collect()
}
