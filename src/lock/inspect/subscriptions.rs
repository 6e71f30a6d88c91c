//! The watches of a store: which resources they cover, and for which of them a mirror is
//! complete.

use std::collections::{BTreeMap, BTreeSet};

use super::Scope;
use crate::ResourceId;

/// The resources that the watches of a store cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// Single resources.
    pub resources: BTreeSet<ResourceId>,
    /// What the names of all other watched resources begin with; `None` if there are no others.
    pub prefix: Option<String>,
    /// The number of the last watch of a single resource; 0 if there is none.
    pub last_resource: u64,
    /// The number of the last watch of a scope; 0 if there is none.
    pub last_scope: u64,
}

impl WatchFilter {
    /// Whether somebody may watch the resource.
    #[must_use]
    pub fn accepts(&self, resource: &ResourceId) -> bool {
        let is_below = |prefix: &String| resource.as_str().starts_with(prefix);
        self.prefix.as_ref().is_some_and(is_below) || self.resources.contains(resource)
    }
}

/// The number of a watch. Later ones have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionNumber {
    Resource(u64),
    Scope(u64),
}

/// Up to which watches a mirror is complete: it has all that was held when they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompleteUpTo {
    pub(super) resources: u64,
    pub(super) scopes: u64,
}

impl CompleteUpTo {
    pub(super) fn covers(self, subscription: SubscriptionNumber) -> bool {
        match subscription {
            SubscriptionNumber::Resource(number) => number <= self.resources,
            SubscriptionNumber::Scope(number) => number <= self.scopes,
        }
    }
}

/// The watches of a store.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    last: u64,
    scopes: BTreeMap<u64, Scope>,
}

impl Subscriptions {
    pub(super) fn add(&mut self, scope: Scope) -> SubscriptionNumber {
        self.last += 1;
        let number = match scope.only() {
            Some(_) => SubscriptionNumber::Resource(self.last),
            None => SubscriptionNumber::Scope(self.last),
        };
        self.scopes.insert(self.last, scope);
        number
    }

    pub(super) fn newest(&self) -> u64 {
        self.last
    }

    pub(super) fn remove(&mut self, subscription: SubscriptionNumber) {
        let (SubscriptionNumber::Resource(number) | SubscriptionNumber::Scope(number)) =
            subscription;
        self.scopes.remove(&number);
    }

    /// What all of them cover.
    pub(super) fn filter(&self) -> WatchFilter {
        let mut filter = WatchFilter::default();
        for (number, scope) in &self.scopes {
            if let Some(resource) = scope.only() {
                filter.resources.insert(resource.clone());
                filter.last_resource = *number;
            } else {
                let prefix = scope.name_prefix();
                let common = filter.prefix.as_deref().map_or(prefix, |it| common(it, prefix));
                filter.prefix = Some(common.to_owned());
                filter.last_scope = *number;
            }
        }
        filter
    }
}

/// What both begin with.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let mut both = one.char_indices().zip(other.chars());
    let end = both.find_map(|((at, letter), other)| (letter != other).then_some(at));
    let end = end.unwrap_or(one.len().min(other.len()));
    one.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> ResourceId {
        ResourceId::new(name).unwrap()
    }

    #[test]
    fn single_resources_and_what_scopes_have_in_common_are_watched() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.add(Scope::resource(resource("x")));
        assert_eq!(subscriptions.filter().prefix, None);
        subscriptions.add(Scope::prefix("lock||ä||a"));
        assert_eq!(subscriptions.filter().prefix.as_deref(), Some("lock||ä||a"));
        subscriptions.add(Scope::prefix("lock||ö||a"));
        let filter = subscriptions.filter();
        assert_eq!(filter.prefix.as_deref(), Some("lock||"));
        assert_eq!((filter.last_resource, filter.last_scope), (1, 3));
        for (name, is_watched) in [("x", true), ("x/below", false), ("lock||ü", true)] {
            assert_eq!(filter.accepts(&resource(name)), is_watched, "{name}");
        }
    }

    #[test]
    fn of_two_prefixes_the_shorter_one_may_be_all_that_they_have_in_common() {
        for (one, other) in [("ab", "abc"), ("abc", "ab"), ("ab", "ab")] {
            assert_eq!(common(one, other), "ab");
        }
        assert_eq!(common("ab", ""), "");
    }

    #[test]
    fn what_is_not_watched_any_more_is_not_accepted() {
        let mut subscriptions = Subscriptions::default();
        let watch = subscriptions.add(Scope::resource(resource("x")));
        subscriptions.add(Scope::prefix("y"));
        subscriptions.remove(watch);
        assert!(!subscriptions.filter().accepts(&resource("x")));
    }
}
