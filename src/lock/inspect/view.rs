//! The public facts of locks.

use std::time::Duration;

use super::GRANTS_SHOWN_MAX;
use crate::{GrantId, Holder, LockId, Mode, ResourceId};

/// A live grant, as everybody may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantView {
    /// `None` for a foreign grant.
    pub id: Option<GrantId>,
    /// The label that its holder gave.
    pub holder: Option<Holder>,
    /// Whether other grants may coexist with it.
    pub mode: Mode,
    /// How long it still lasts without a renewal. Only for a single resource, and
    /// `None` if the backend would need a call for each.
    pub remaining: Option<Duration>,
    /// When it was granted, in milliseconds since the Unix epoch by some wall clock. For
    /// people: it is never compared.
    pub since_unix_ms: Option<u64>,
    /// Whether it was not made by leasehold but, for example, by the built-in
    /// `lock.redis`. Only for a single resource.
    pub foreign: bool,
}

impl GrantView {
    /// A grant of which only the mode is known.
    #[must_use]
    pub fn unknown(mode: Mode) -> Self {
        Self {
            id: None,
            holder: None,
            mode,
            remaining: None,
            since_unix_ms: None,
            foreign: false,
        }
    }
}

/// Who holds a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// What is locked.
    pub resource: ResourceId,
    /// The live grants, or the first of them. None: the resource is free.
    pub grants: Vec<GrantView>,
    /// How many live grants there are.
    pub grants_total: usize,
}

impl LockView {
    /// A resource with these grants, of which the first are shown.
    pub fn new(resource: ResourceId, grants: impl IntoIterator<Item = GrantView>) -> Self {
        let mut grants = grants.into_iter();
        let shown: Vec<_> = grants.by_ref().take(GRANTS_SHOWN_MAX).collect();
        Self { resource, grants_total: shown.len() + grants.count(), grants: shown }
    }

    /// Roughly how many bytes it has on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        const ITEM: usize = 64;
        let holder =
            |grant: &GrantView| grant.holder.as_ref().map_or(0, |id| id.as_str().len());
        let grants: usize = self.grants.iter().map(|grant| ITEM + holder(grant)).sum();
        ITEM + self.resource.as_str().len() + grants
    }

    /// A resource that nobody holds.
    #[must_use]
    pub fn free(resource: ResourceId) -> Self {
        Self { resource, grants: Vec::new(), grants_total: 0 }
    }
}

/// One resource with its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// A page of its grants.
    pub lock: LockView,
    /// By how much [`GrantView::remaining`] may be too small here.
    pub remaining_short_max: Duration,
    /// The lock ID of its exclusive grant, if its request published that
    /// ([`Attempt::published`](crate::Attempt::published)). Only clients of a Redis front get
    /// it.
    pub published: Option<LockId>,
    /// How many wait for it.
    pub waiters: usize,
    /// Where its further grants are, if there are any.
    pub next: Option<super::Cursor>,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The place in the queue; 1 is the next.
    pub position: usize,
    /// The label that it gave.
    pub holder: Option<Holder>,
    /// What it waits for.
    pub mode: Mode,
    /// When it began to wait, in milliseconds since the Unix epoch by some wall clock, if
    /// the backend keeps that. For people.
    pub since_unix_ms: Option<u64>,
}

/// A grant that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedGrant {
    /// As it was.
    pub grant: GrantView,
    /// Why it ended.
    pub cause: EndCause,
}

/// Why a grant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// Not known.
    Unknown,
    /// Its holder released it.
    Released,
    /// Its TTL was over.
    Expired,
    /// Somebody ended it by force.
    Forced,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The grants of a resource have changed.
    Changed {
        /// The resource as it is now.
        lock: LockView,
        /// Grants that ended since the last event of the resource, as far as they were seen:
        /// the last 100, or 10 if the resource is free now.
        ended: Vec<EndedGrant>,
    },
    /// Changes may have been missed: earlier events are void, and all states follow.
    Restarted,
    /// All states have been reported. Repeated every 10 s.
    Synced,
}
