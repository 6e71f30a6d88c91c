//! Which names of a store belong to an app, and which of them a scope has.

use leasehold_lock::{ResourceId, Violation, inspect::Scope};

use super::{
    name::{NameScope, ResourceName},
    prefix::{KeyPrefix, no_namespaces},
};

/// The names of a store that belong to one app: the app's prefix, followed by the app's own
/// name of the resource. An app sees and ends no others. If an app has no ID, the names of
/// all apps begin with its prefix, but what follows it in another app's name is not a valid
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppNames {
    prefix: String,
    /// Whether names in a namespace cannot collide with those of other apps.
    has_namespaces: bool,
}

impl AppNames {
    /// The names of an app in a store with this key prefix.
    #[must_use]
    pub fn of(prefix: &KeyPrefix, store_name: &str, app_id: &str) -> Self {
        Self {
            prefix: prefix.join("", store_name, app_id),
            has_namespaces: prefix.separates(store_name, app_id),
        }
    }

    /// The app's name of a resource of the store; `None` if it belongs to another app.
    #[must_use]
    pub fn read(&self, resource: &ResourceId) -> Option<ResourceName> {
        let rest = resource.as_str().strip_prefix(&self.prefix)?;
        let name = ResourceName::decode(&ResourceId::new(rest).ok()?)?;
        (self.has_namespaces || !name.has_namespace()).then_some(name)
    }

    /// The resources of the store that the app means. The violation names `namespace` if
    /// the app can use none.
    pub fn scope(&self, wanted: NameScope) -> Result<Scope, Violation> {
        if !wanted.namespace.segments().is_empty() && !self.has_namespaces {
            return Err(no_namespaces());
        }
        let names = self.clone();
        let beginning = self.beginning(&wanted);
        Ok(Scope::of(&beginning, move |resource| {
            names.read(resource).is_some_and(|name| wanted.has(&name))
        }))
    }

    /// The common beginning of the store's names of these resources.
    #[must_use]
    pub fn beginning(&self, wanted: &NameScope) -> String {
        format!("{}{}", self.prefix, wanted.beginning())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::Namespace;

    const STORE: &str = "store";

    fn id(name: &str) -> ResourceId {
        name.parse().unwrap()
    }

    fn namespace(segments: &[&str]) -> Namespace {
        Namespace::new(segments.iter().map(|&segment| segment.to_owned()).collect()).unwrap()
    }

    fn scope(segments: &[&str], children: bool, prefix: &str) -> NameScope {
        NameScope { namespace: namespace(segments), children, prefix: prefix.into() }
    }

    #[test]
    fn an_app_without_an_id_has_only_names_without_one() {
        for (prefix, app_id) in [(KeyPrefix::AppId, ""), (KeyPrefix::None, "app")] {
            let names = AppNames::of(&prefix, STORE, app_id);
            for own in ["lock||r", "lock||a/b|c", "lock||||a/b//r"] {
                assert!(names.read(&id(own)).is_some(), "{own}");
            }
            for other in ["lock||app||r", "lock||app||||a//r", "lock||||a//b//c", "lock||", "r"]
            {
                assert!(names.read(&id(other)).is_none(), "{other}");
            }
        }
    }

    #[test]
    fn an_app_whose_prefix_does_not_separate_has_plain_names_only() {
        for (prefix, app_id, own) in [
            (KeyPrefix::Word(String::new()), "app", "lock||||"),
            (KeyPrefix::AppId, "a|b", "lock||a|b||"),
        ] {
            let names = AppNames::of(&prefix, STORE, app_id);
            assert!(names.read(&id(&format!("{own}r"))).is_some());
            assert!(names.read(&id(&format!("{own}||a//r"))).is_none());
            assert!(names.scope(scope(&[], true, "")).is_ok());
            let refused = names.scope(scope(&["a"], false, "")).unwrap_err();
            assert_eq!(refused.field, "namespace");
        }
    }

    #[test]
    fn the_store_is_asked_for_the_longest_prefix() {
        let names = AppNames::of(&KeyPrefix::AppId, STORE, "app");
        for (wanted, beginning) in [
            (scope(&[], false, "a/b"), "lock||app||a/b"),
            (scope(&[], true, "a"), "lock||app||"),
            (scope(&["a/b", "c"], false, "k|"), "lock||app||||a%2Fb/c//k%7C"),
            (scope(&["a/b", "c"], true, "k"), "lock||app||||a%2Fb/c/"),
        ] {
            assert_eq!(names.beginning(&wanted), beginning);
        }
    }

    fn segments() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab%/|2F]{1,2}", 0..3)
    }

    fn app_id() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["", "a", "aa", "a/", "%7C"])
    }

    prop_compose! {
        fn name()(segments in segments(), key in "[ab%/|2F]{1,3}") -> Option<ResourceName> {
            let namespace = Namespace::new(segments).ok()?;
            ResourceName::new(&namespace, key.parse().ok()?).ok()
        }
    }

    prop_compose! {
        /// A scope that often contains the name.
        fn scope_near(name: ResourceName)(
            take in 0..3_usize,
            length in 0..3_usize,
            other in segments(),
            prefix in "[ab%/|2F]{0,1}",
            near in any::<[bool; 3]>(),
        ) -> NameScope {
            let [near_namespace, near_key, children] = near;
            let within = name.namespace().segments();
            let segments = if near_namespace {
                within.iter().take(take).cloned().collect()
            } else {
                other
            };
            let prefix = if near_key {
                name.key().as_str().chars().take(length).collect()
            } else {
                prefix
            };
            NameScope { namespace: Namespace::new(segments).unwrap(), children, prefix }
        }
    }

    fn named_and_scope() -> impl Strategy<Value = (ResourceName, NameScope)> {
        name()
            .prop_filter_map("no name", |name| name)
            .prop_flat_map(|name| (Just(name.clone()), scope_near(name)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_scope_has_a_resource_exactly_if_its_name_fits(
            (name, wanted) in named_and_scope(),
            app_id in app_id(),
        ) {
            let stored = KeyPrefix::AppId.apply_to(&name, STORE, app_id).unwrap();
            let names = AppNames::of(&KeyPrefix::AppId, STORE, app_id);
            prop_assert_eq!(names.read(&stored), Some(name.clone()));
            let within = name.namespace().segments();
            let asked = wanted.namespace.segments();
            let fits = name.key().as_str().starts_with(&wanted.prefix)
                && (within == asked
                    || wanted.children && within.len() > asked.len() && within[..asked.len()] == *asked);
            prop_assert_eq!(names.scope(wanted).unwrap().has(&stored), fits);
        }

        /// Trap: sidecar 29
        #[test]
        fn no_scope_of_an_app_has_a_name_of_another(
            (name, wanted) in named_and_scope(),
            app_id in app_id(),
            other in app_id(),
        ) {
            prop_assume!(app_id != other);
            let stored = KeyPrefix::AppId.apply_to(&name, STORE, other).unwrap();
            let names = AppNames::of(&KeyPrefix::AppId, STORE, app_id);
            prop_assert!(!names.scope(wanted).unwrap().has(&stored), "{}", stored);
            prop_assert_eq!(names.read(&stored), None);
        }

        /// Whatever else is in the store.
        #[test]
        fn a_scope_has_only_what_the_app_could_lock(rest in "[ab|/%]{0,12}", app_id in app_id()) {
            let stored = id(&format!("lock||{rest}"));
            let names = AppNames::of(&KeyPrefix::AppId, STORE, app_id);
            let all = names.scope(scope(&[], true, "")).unwrap();
            let own = names.read(&stored);
            let again = own.as_ref().map(|own| KeyPrefix::AppId.apply_to(own, STORE, app_id).unwrap());
            prop_assert_eq!(all.has(&stored), again.as_ref() == Some(&stored));
        }
    }
}
