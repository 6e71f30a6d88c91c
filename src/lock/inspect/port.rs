//! The port of a backend that can be inspected.

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Inspected, LockView, Mirror, WaiterView};
use crate::{BackendError, GrantId, Holder, ResourceId};

/// The most that a page holds, in bytes as [`LockView::size`] counts them.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// A position in a list, as the backend that made it writes it: at most 1,536 bytes, without
/// any secret, because callers can read it. A caller can invent one: the backend must then
/// begin anywhere in the same list, or answer [`BackendError::Invalid`].
pub type Cursor = Box<str>;

/// A request for a page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Continue after the page with this cursor; `None`: from the beginning.
    pub after: Option<Cursor>,
    /// How many items at most, at least 1.
    pub limit: usize,
    /// The page ends with the item with which it reaches this size.
    pub bytes_max: usize,
}

impl PageRequest {
    /// The first page of at most `limit` items.
    #[must_use]
    pub fn first(limit: usize) -> Self {
        Self { after: None, limit, bytes_max: PAGE_BYTES_MAX }
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items. There may be none although there are further pages.
    pub items: Vec<T>,
    /// Where the list continues; `None` if this was the last page.
    pub next: Option<Cursor>,
}

/// A page of a resource's grants in the order of their IDs, for a backend that reads all of
/// them for each page.
#[derive(Clone, Copy, Debug)]
pub struct GrantPage {
    after: Option<GrantId>,
    limit: usize,
}

impl GrantPage {
    /// Reads the request for a page.
    pub fn read(page: &PageRequest) -> Result<Self, BackendError> {
        let after = page.after.as_deref().map(str::parse::<GrantId>).transpose();
        let after = after.map_err(|_| BackendError::bad_cursor())?;
        Ok(Self { after, limit: page.limit })
    }

    /// Takes the page from all grants. `id` returns the ID of one. Those without an ID, which
    /// are foreign, are on the first page only.
    pub fn take<T>(self, mut grants: Vec<T>, id: impl Fn(&T) -> Option<GrantId>) -> Page<T> {
        grants.retain(|grant| self.after.is_none() || id(grant) > self.after);
        grants.sort_unstable_by_key(&id);
        let is_last = grants.len() <= self.limit;
        grants.truncate(self.limit);
        let last = grants.last().filter(|_| !is_last);
        let next = last.map(|grant| id(grant).unwrap_or(GrantId::from_u128(0)));
        Page { items: grants, next: next.map(|id| id.to_string().into()) }
    }
}

/// The grants to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The prefix of resource names.
    pub name_prefix: String,
    /// The prefix of holders. If empty, also grants without a holder.
    pub holder_prefix: String,
}

impl Selection {
    /// Whether a grant of this holder is listed.
    #[must_use]
    pub fn has_holder(&self, holder: Option<&Holder>) -> bool {
        holder.map_or("", Holder::as_str).starts_with(&self.holder_prefix)
    }
}

/// The inspection of a backend with
/// [`Feature::Inspection`](crate::Feature::Inspection).
///
/// Because nothing changes, the domain reports [`BackendError::Unknown`] as unavailable.
///
/// Rules for every method but `watch`:
/// - `until` bounds it, as it does the verbs of [`Backend`](crate::Backend), and its
///   future may be dropped at any await.
/// - It writes nothing to the keys of a resource, and does not delay the verbs.
/// - Each resource is reported as it was at some moment between call and answer.
/// - Except by `get`, only grants that leasehold made are reported.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Returns one resource, held or not, with a page of its grants.
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError>;

    /// Lists held resources with their selected grants, at most
    /// [`GRANTS_SHOWN_MAX`](super::GRANTS_SHOWN_MAX) each. A resource that is held from the
    /// call for the first page to the answer of the last is listed at least once.
    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError>;

    /// Lists who waits for a resource, in the order of the queue.
    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError>;

    /// Keeps `mirror` equal to the store until dropped: reports each held resource to it,
    /// then that it is complete, then each change. If it may have missed changes, it restarts
    /// the mirror and reports everything again. Returns only if that cannot be done; the
    /// mirror is then restarted and the method called again. [`BackendError::Unsupported`]
    /// ends all watches instead. A backend that has to read in order to learn of changes may
    /// keep to the resources that [`Mirror::forget_unwatched`] returns. Only with
    /// [`Feature::Watch`](crate::Feature::Watch).
    async fn watch(&self, mirror: &Mirror) -> BackendError {
        let _ = mirror;
        BackendError::Unsupported("this store cannot be watched".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages of these grants, two on each.
    fn pages(all: &[Option<u128>]) -> Vec<Vec<Option<u128>>> {
        let grants: Vec<_> = all.iter().map(|id| id.map(GrantId::from_u128)).collect();
        let number = |id: GrantId| u128::from_str_radix(&id.to_string(), 16).unwrap();
        let (mut page, mut pages) = (PageRequest::first(2), Vec::new());
        loop {
            let found = GrantPage::read(&page).unwrap().take(grants.clone(), |id| *id);
            pages.push(found.items.into_iter().map(|id| id.map(number)).collect());
            page.after = found.next;
            if page.after.is_none() {
                return pages;
            }
        }
    }

    #[test]
    fn each_grant_is_on_one_page_in_the_order_of_their_ids() {
        let all = [5, 1, 4, 2, 3].map(Some);
        assert_eq!(
            pages(&all),
            [vec![Some(1), Some(2)], vec![Some(3), Some(4)], vec![Some(5)]]
        );
        assert_eq!(pages(&all[..1]), [vec![Some(5)]]);
        assert!(pages(&[]).concat().is_empty());
    }

    #[test]
    fn foreign_grants_are_on_the_first_page() {
        let all = [Some(2), None, Some(1), None];
        assert_eq!(pages(&all), [vec![None, None], vec![Some(1), Some(2)]]);
    }

    #[test]
    fn a_cursor_that_is_no_id_is_refused() {
        let page = PageRequest { after: Some("x".into()), ..PageRequest::first(1) };
        assert_eq!(GrantPage::read(&page).unwrap_err(), BackendError::bad_cursor());
    }
}
