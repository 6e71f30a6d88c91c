//! Ending the grants of others, each by its public ID.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use tracing::warn;

use super::{GrantView, Listing, LockView, PageRequest, Scope};
use crate::lock::{GrantId, LockError, ResourceId, Store, UnlockOf, UnlockRequest};

/// After this time no further grant is ended, and the answer says that there are more.
const END_TIME_MAX: Duration = Duration::from_secs(4);
/// How many grants are ended at a time.
const CONCURRENT_MAX: usize = 32;

/// Asks to end grants, whoever holds them.
#[derive(Clone, Debug)]
pub struct EndRequest {
    /// Which grants.
    pub of: EndOf,
    /// Only tell which would be ended.
    pub dry_run: bool,
    /// How many grants at most, at least 1.
    pub limit: usize,
}

/// Which grants an [`EndRequest`] ends.
#[derive(Clone, Debug)]
pub enum EndOf {
    /// Those of one resource, also a foreign one, or only the one with this ID.
    Resource(ResourceId, Option<GrantId>),
    /// Those that are listed.
    Scope {
        /// Of these resources.
        scope: Scope,
        /// Of holders that begin so.
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

impl Store {
    /// Ends the grants that it lists, and none that was made since. A grant that has ended
    /// by itself meanwhile is not told. If some were ended and then the backend fails, the
    /// answer tells those, with `more` set.
    pub async fn end(&self, request: &EndRequest) -> Result<Ended, LockError> {
        let mut ending = Ending {
            store: self,
            dry_run: request.dry_run,
            left: request.limit,
            ends_at: Instant::now() + END_TIME_MAX,
            ended: Ended::default(),
        };
        let result = match &request.of {
            EndOf::Resource(resource, id) => ending.resource(resource, *id).await,
            EndOf::Scope { scope, holder_prefix } => ending.scope(scope, holder_prefix).await,
        };
        match result {
            Err(error) if ending.ended.locks.is_empty() => Err(error),
            Err(error) => {
                warn!(%error, "not all grants could be ended");
                Ok(Ended { more: true, ..ending.ended })
            }
            Ok(more) => Ok(Ended { more, ..ending.ended }),
        }
    }
}

struct Ending<'a> {
    store: &'a Store,
    dry_run: bool,
    left: usize,
    ends_at: Instant,
    ended: Ended,
}

impl Ending<'_> {
    /// Returns whether there may be more.
    async fn resource(
        &mut self,
        resource: &ResourceId,
        id: Option<GrantId>,
    ) -> Result<bool, LockError> {
        let mut page = PageRequest::first(self.left);
        let mut is_held = false;
        loop {
            let found = self.store.get(resource, &page).await?;
            is_held |= found.lock.grants_total > 0;
            let wanted = |grant: &GrantView| id.is_none() || grant.id == id;
            let grants = found.lock.grants.into_iter().filter(wanted).collect();
            let all = self
                .grants(LockView { resource: resource.clone(), grants, grants_total: 0 })
                .await?;
            let is_found = id.is_some() && !self.ended.locks.is_empty();
            page.after = found.next;
            if page.after.is_none() || !all || is_found {
                if self.ended.locks.is_empty() && all {
                    return Err(LockError::NotFound { held: is_held && id.is_some() });
                }
                return Ok(!all || page.after.is_some() && !is_found);
            }
        }
    }

    async fn scope(&mut self, scope: &Scope, holder_prefix: &str) -> Result<bool, LockError> {
        let mut listing = Listing {
            scope: scope.clone(),
            holder_prefix: holder_prefix.to_owned(),
            page: PageRequest::first(self.left),
        };
        loop {
            let found = self.store.list(&listing).await?;
            let mut all = true;
            for lock in found.items {
                let has_more = lock.grants_total > lock.grants.len();
                all = self.grants(lock).await? && !has_more && all;
                if self.left == 0 {
                    all = false;
                    break;
                }
            }
            listing.page.after = found.next;
            if listing.page.after.is_none() || !all || Instant::now() >= self.ends_at {
                return Ok(!all || listing.page.after.is_some());
            }
            listing.page.limit = self.left;
        }
    }

    /// Ends the grants shown of a resource. Returns whether the limits allowed all of them.
    async fn grants(&mut self, lock: LockView) -> Result<bool, LockError> {
        let LockView { resource, grants, .. } = lock;
        let wanted = grants.len();
        let allowed = if Instant::now() < self.ends_at { self.left.min(wanted) } else { 0 };
        let (store, dry_run) = (self.store, self.dry_run);
        let mut ends = stream::iter(grants.into_iter().take(allowed))
            .map(|grant| {
                let resource = resource.clone();
                async move {
                    let ended =
                        if dry_run { Ok(()) } else { end(store, resource, &grant).await };
                    (grant, ended)
                }
            })
            .buffered(CONCURRENT_MAX);
        let (mut ended, mut failed) = (Vec::new(), None);
        while let Some((grant, result)) = ends.next().await {
            match result {
                Ok(()) => ended.push(grant),
                Err(LockError::NotFound { .. }) => {}
                // An end of unknown outcome is told before one that did not happen.
                Err(error) if matches!(failed, Some(LockError::OutcomeUnknown(_))) => {
                    warn!(%error, "another grant could not be ended");
                }
                Err(error) => failed = Some(error),
            }
        }
        drop(ends);
        if !ended.is_empty() {
            self.left -= ended.len();
            self.ended.locks.push(LockView {
                resource,
                grants_total: ended.len(),
                grants: ended,
            });
        }
        failed.map_or(Ok(allowed == wanted), Err)
    }
}

async fn end(store: &Store, resource: ResourceId, grant: &GrantView) -> Result<(), LockError> {
    // A foreign grant has no ID. Nothing else can end it.
    let of = grant.id.map_or(UnlockOf::Anyone, UnlockOf::Id);
    store.unlock(UnlockRequest { resource, of }).await
}
