//! What those who watch a store want to be told of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Mirror, Scope};
use crate::lock::ResourceId;

/// What is watched of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Single resources.
    pub resources: BTreeSet<ResourceId>,
    /// What the names of all other watched resources begin with; `None` if there are no others.
    pub prefix: Option<String>,
    /// The number of the last watch of a single resource; 0 if there is none.
    pub last_resource: u64,
    /// The number of the last watch of a scope; 0 if there is none.
    pub last_scope: u64,
}

impl Wanted {
    /// Whether somebody may watch the resource.
    #[must_use]
    pub fn has(&self, resource: &ResourceId) -> bool {
        let is_below = |prefix: &String| resource.as_str().starts_with(prefix);
        self.prefix.as_ref().is_some_and(is_below) || self.resources.contains(resource)
    }
}

/// The number of a watch. Later ones have greater numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Resource(u64),
    Scope(u64),
}

/// Up to which watches all states have been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) resources: u64,
    pub(super) scopes: u64,
}

impl Told {
    /// To all watches, also to those that begin later.
    pub(super) const ALL: Self = Self { resources: u64::MAX, scopes: u64::MAX };

    pub(super) fn has(self, watch: Number) -> bool {
        match watch {
            Number::Resource(number) => number <= self.resources,
            Number::Scope(number) => number <= self.scopes,
        }
    }
}

/// The watches of a store.
#[derive(Debug, Default)]
pub(super) struct Demands {
    last: u64,
    scopes: BTreeMap<u64, Scope>,
}

impl Demands {
    pub(super) fn add(&mut self, scope: Scope) -> Number {
        self.last += 1;
        let number = match scope.only() {
            Some(_) => Number::Resource(self.last),
            None => Number::Scope(self.last),
        };
        self.scopes.insert(self.last, scope);
        number
    }

    pub(super) fn newest(&self) -> u64 {
        self.last
    }

    fn remove(&mut self, watch: Number) {
        let (Number::Resource(number) | Number::Scope(number)) = watch;
        self.scopes.remove(&number);
    }

    pub(super) fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        for (number, scope) in &self.scopes {
            if let Some(resource) = scope.only() {
                wanted.resources.insert(resource.clone());
                wanted.last_resource = *number;
            } else {
                let prefix = scope.name_prefix();
                let common = wanted.prefix.as_deref().map_or(prefix, |it| common(it, prefix));
                wanted.prefix = Some(common.to_owned());
                wanted.last_scope = *number;
            }
        }
        wanted
    }
}

/// What both begin with.
fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let mut both = one.char_indices().zip(other.chars());
    let end = both.find_map(|((at, letter), other)| (letter != other).then_some(at));
    let end = end.unwrap_or(one.len().min(other.len()));
    one.get(..end).unwrap_or_default()
}

/// A watch that the backend knows of until this is dropped.
#[derive(Debug)]
pub(super) struct Want {
    mirror: Arc<Mirror>,
    pub(super) number: Number,
}

impl Want {
    pub(super) fn new(mirror: Arc<Mirror>, scope: Scope) -> Self {
        let number = mirror.change_demands(|demands| demands.add(scope));
        Self { mirror, number }
    }
}

impl Drop for Want {
    fn drop(&mut self) {
        self.mirror.change_demands(|demands| demands.remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> ResourceId {
        ResourceId::new(name).unwrap()
    }

    #[test]
    fn single_resources_and_what_scopes_have_in_common_are_wanted() {
        let mut demands = Demands::default();
        demands.add(Scope::resource(resource("x")));
        assert_eq!(demands.wanted().prefix, None);
        demands.add(Scope::prefix("lock||ä||a"));
        assert_eq!(demands.wanted().prefix.as_deref(), Some("lock||ä||a"));
        demands.add(Scope::prefix("lock||ö||a"));
        let wanted = demands.wanted();
        assert_eq!(wanted.prefix.as_deref(), Some("lock||"));
        assert_eq!((wanted.last_resource, wanted.last_scope), (1, 3));
        for (name, is_wanted) in [("x", true), ("x/below", false), ("lock||ü", true)] {
            assert_eq!(wanted.has(&resource(name)), is_wanted, "{name}");
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
    fn what_is_not_watched_any_more_is_not_wanted() {
        let mut demands = Demands::default();
        let watch = demands.add(Scope::resource(resource("x")));
        demands.add(Scope::prefix("y"));
        demands.remove(watch);
        assert!(!demands.wanted().has(&resource("x")));
    }
}
