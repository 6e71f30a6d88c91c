//! The names that an app's resources have in a store. A plain key gets exactly daprd's prefix, so
//! that locks of both exclude each other.

use leasehold_lock::{ResourceId, Violation, inspect::Scope};

use super::name::{NameScope, ResourceName, refuse_separator};

/// The metadata key of the prefix, matched without regard to case.
pub const PROPERTY: &str = "keyPrefix";

/// Whether this is the name of that metadata item.
#[must_use]
pub fn is_key_prefix(key: &str) -> bool {
    key.eq_ignore_ascii_case(PROPERTY)
}

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
    /// The names of an app in the store `store_name`. `key_prefix` is read in lower case, as daprd
    /// does: `appid`, `name`, `none`, or a word. The violation names `keyPrefix`.
    pub fn new(key_prefix: &str, store_name: &str, app_id: &str) -> Result<Self, Violation> {
        let key_prefix = key_prefix.to_lowercase();
        refuse_separator(PROPERTY, &key_prefix)?;
        let between = match key_prefix.as_str() {
            "appid" => Some(app_id).filter(|app_id| !app_id.is_empty()),
            "name" => Some(store_name),
            "none" => None,
            word => Some(word),
        };
        Ok(Self {
            prefix: match between {
                None => "lock||".to_owned(),
                Some(between) => format!("lock||{between}||"),
            },
            has_namespaces: between
                .is_none_or(|between| !between.is_empty() && !between.contains('|')),
        })
    }

    /// Like [`AppNames::new`], for a store with these metadata items; by default the prefix is
    /// the app's ID.
    pub fn of_items<'a>(
        items: impl IntoIterator<Item = (&'a str, &'a str)>,
        store_name: &str,
        app_id: &str,
    ) -> Result<Self, Violation> {
        let mut items = items.into_iter();
        let given = items.find(|(key, _)| is_key_prefix(key));
        Self::new(given.map_or("appid", |(_, value)| value), store_name, app_id)
    }

    /// The store's name of the plain key `resource`, as daprd makes it; the violation names
    /// `resource_id`.
    pub fn of_key(&self, resource: &str) -> Result<String, Violation> {
        refuse_separator("resource_id", resource)?;
        Ok(format!("{}{resource}", self.prefix))
    }

    /// The store's name of a resource; the violation names `resource_id`, or `namespace` if
    /// the prefix cannot separate a name in a namespace from the names of other apps.
    pub fn of(&self, name: &ResourceName) -> Result<ResourceId, Violation> {
        if name.has_namespace() && !self.has_namespaces {
            return Err(no_namespaces());
        }
        // The name itself is short enough.
        ResourceId::new(&format!("{}{}", self.prefix, name.encoded())).map_err(|violation| {
            let problem = format!("{} with its prefix {:?}", violation.problem, self.prefix);
            Violation::new(violation.field, problem)
        })
    }

    /// The app's name of a resource of the store; `None` if it belongs to another app.
    #[must_use]
    pub fn name_of(&self, resource: &ResourceId) -> Option<ResourceName> {
        let rest = resource.as_str().strip_prefix(&self.prefix)?;
        let name = ResourceName::decode(&ResourceId::new(rest).ok()?)?;
        (self.has_namespaces || !name.has_namespace()).then_some(name)
    }

    /// The resources of the store that the app means. The violation names `namespace` if
    /// the app can use none.
    pub fn scope_of(&self, wanted: NameScope) -> Result<Scope, Violation> {
        if !wanted.namespace.segments().is_empty() && !self.has_namespaces {
            return Err(no_namespaces());
        }
        let names = self.clone();
        let beginning = self.beginning(&wanted);
        Ok(Scope::of(&beginning, move |resource| {
            names.name_of(resource).is_some_and(|name| wanted.has(&name))
        }))
    }

    /// The common beginning of the store's names of these resources.
    fn beginning(&self, wanted: &NameScope) -> String {
        format!("{}{}", self.prefix, wanted.beginning())
    }
}

/// The refusal of a namespace where the prefix cannot separate it from other names.
fn no_namespaces() -> Violation {
    Violation::new(
        "namespace",
        format!(
            "cannot be used: with an empty {PROPERTY}, or a '|' before the resource's name, \
             names of other apps could be the same"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::name::Namespace;

    const STORE: &str = "store";

    fn of_app(app_id: &str) -> AppNames {
        AppNames::new("appid", STORE, app_id).unwrap()
    }

    fn key(prefix: &str, app_id: &str) -> String {
        AppNames::new(prefix, STORE, app_id).unwrap().of_key("r").unwrap()
    }

    #[test]
    fn prefixes_are_those_of_daprd() {
        for (prefix, app_id, expected) in [
            ("appid", "app", "lock||app||r"),
            ("appid", "", "lock||r"),
            ("AppID", "app", "lock||app||r"),
            ("name", "app", "lock||store||r"),
            ("NAME", "", "lock||store||r"),
            ("none", "app", "lock||r"),
            ("Shared", "app", "lock||shared||r"),
            ("", "app", "lock||||r"),
        ] {
            assert_eq!(key(prefix, app_id), expected, "{prefix:?} {app_id:?}");
        }
    }

    #[test]
    fn the_default_is_the_app_id_and_the_key_is_matched_in_any_case() {
        let of = |items| AppNames::of_items([items], STORE, "app").unwrap();
        assert_eq!(of(("redisHost", "h")), of_app("app"));
        assert_eq!(of(("KEYPREFIX", "name")), AppNames::new("name", STORE, "app").unwrap());
    }

    fn in_namespace(prefix: &str, app_id: &str) -> Result<String, Violation> {
        let namespace = Namespace::new(vec!["a".into(), "b".into()]).unwrap();
        let name = ResourceName::new(&namespace, "k".parse().unwrap()).unwrap();
        let name = AppNames::new(prefix, STORE, app_id).unwrap().of(&name)?;
        Ok(name.as_str().to_owned())
    }

    #[test]
    fn a_namespace_stands_behind_the_prefix() {
        for (prefix, app_id, expected) in [
            ("appid", "app", "lock||app||||a/b//k"),
            ("appid", "", "lock||||a/b//k"),
            ("name", "app", "lock||store||||a/b//k"),
            ("none", "app", "lock||||a/b//k"),
            ("word", "", "lock||word||||a/b//k"),
        ] {
            assert_eq!(
                in_namespace(prefix, app_id).unwrap(),
                expected,
                "{prefix:?} {app_id:?}"
            );
        }
    }

    #[test]
    fn a_namespace_is_refused_where_the_prefix_does_not_separate() {
        for (prefix, app_id) in [("", "app"), ("appid", "a|b"), ("appid", "|"), ("a|", "app")] {
            let refused = in_namespace(prefix, app_id).unwrap_err();
            assert_eq!(refused.field, "namespace", "{prefix:?} {app_id:?}");
        }
        assert!(in_namespace("none", "a|b").is_ok(), "the app's ID is not part of the name");
    }

    #[test]
    fn the_prefix_counts_for_the_longest_name() {
        let key = "k".repeat(1024 - "lock||app||".len());
        let name = |key: &str| key.parse::<ResourceName>().unwrap();
        assert!(of_app("app").of(&name(&key)).is_ok());
        let longer = name(&(key + "k"));
        let refused = of_app("app").of(&longer).unwrap_err();
        assert_eq!(refused.field, "resource_id");
    }

    /// Every text of 1 to `longest` of a few characters.
    fn texts(longest: usize) -> Vec<String> {
        let (mut texts, mut from) = (vec![String::new()], 0);
        for _ in 0..longest {
            let to = texts.len();
            for at in from..to {
                texts.extend(['a', '/', '|', '%'].map(|end| format!("{}{end}", texts[at])));
            }
            from = to;
        }
        texts.split_off(1)
    }

    /// All of the short ones, with and without a namespace, of several apps.
    /// Trap: sidecar 29
    #[test]
    fn two_resources_never_have_one_name_in_a_store() {
        let (segments, keys) = (texts(2), texts(3));
        let mut namespaces = vec![Vec::new()];
        namespaces.extend(segments.iter().map(|segment| vec![segment.clone()]));
        for outer in &segments {
            namespaces.extend(segments.iter().map(|inner| vec![outer.clone(), inner.clone()]));
        }
        let mut names = HashMap::new();
        for app_id in ["", "a", "aa", "a/"] {
            for namespace in &namespaces {
                let within = Namespace::new(namespace.clone()).unwrap();
                for key in &keys {
                    let Ok(name) = ResourceName::new(&within, key.parse().unwrap()) else {
                        continue;
                    };
                    let name = of_app(app_id).of(&name).unwrap();
                    let resource = (app_id, namespace, key);
                    let other = names.insert(name.clone(), resource);
                    assert_eq!(other, None, "{name} is also {resource:?}");
                }
            }
        }
        assert!(names.len() > 100_000);
    }

    /// Trap: sidecar 29
    #[test]
    fn a_separator_is_refused_in_daprs_words() {
        let refused = of_app("app").of_key("a||b").unwrap_err();
        assert_eq!(refused.field, "resource_id");
        assert_eq!(refused.problem, "input key/keyPrefix 'a||b' can't contain '||'");
        assert_eq!(AppNames::new("a||b", STORE, "app").unwrap_err().field, PROPERTY);
    }

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
        for (prefix, app_id) in [("appid", ""), ("none", "app")] {
            let names = AppNames::new(prefix, STORE, app_id).unwrap();
            for own in ["lock||r", "lock||a/b|c", "lock||||a/b//r"] {
                assert!(names.name_of(&id(own)).is_some(), "{own}");
            }
            for other in ["lock||app||r", "lock||app||||a//r", "lock||||a//b//c", "lock||", "r"]
            {
                assert!(names.name_of(&id(other)).is_none(), "{other}");
            }
        }
    }

    #[test]
    fn an_app_whose_prefix_does_not_separate_has_plain_names_only() {
        for (prefix, app_id, own) in [("", "app", "lock||||"), ("appid", "a|b", "lock||a|b||")]
        {
            let names = AppNames::new(prefix, STORE, app_id).unwrap();
            assert!(names.name_of(&id(&format!("{own}r"))).is_some());
            assert!(names.name_of(&id(&format!("{own}||a//r"))).is_none());
            assert!(names.scope_of(scope(&[], true, "")).is_ok());
            let refused = names.scope_of(scope(&["a"], false, "")).unwrap_err();
            assert_eq!(refused.field, "namespace");
        }
    }

    #[test]
    fn the_store_is_asked_for_the_longest_prefix() {
        let names = of_app("app");
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
            let stored = of_app(app_id).of(&name).unwrap();
            let names = of_app(app_id);
            prop_assert_eq!(names.name_of(&stored), Some(name.clone()));
            let within = name.namespace().segments();
            let asked = wanted.namespace.segments();
            let fits = name.key().as_str().starts_with(&wanted.prefix)
                && (within == asked
                    || wanted.children && within.len() > asked.len() && within[..asked.len()] == *asked);
            prop_assert_eq!(names.scope_of(wanted).unwrap().has(&stored), fits);
        }

        /// Trap: sidecar 29
        #[test]
        fn no_scope_of_an_app_has_a_name_of_another(
            (name, wanted) in named_and_scope(),
            app_id in app_id(),
            other in app_id(),
        ) {
            prop_assume!(app_id != other);
            let stored = of_app(other).of(&name).unwrap();
            let names = of_app(app_id);
            prop_assert!(!names.scope_of(wanted).unwrap().has(&stored), "{}", stored);
            prop_assert_eq!(names.name_of(&stored), None);
        }

        /// Whatever else is in the store.
        #[test]
        fn a_scope_has_only_what_the_app_could_lock(rest in "[ab|/%]{0,12}", app_id in app_id()) {
            let stored = id(&format!("lock||{rest}"));
            let names = of_app(app_id);
            let all = names.scope_of(scope(&[], true, "")).unwrap();
            let own = names.name_of(&stored);
            let again = own.as_ref().map(|own| of_app(app_id).of(own).unwrap());
            prop_assert_eq!(all.has(&stored), again.as_ref() == Some(&stored));
        }
    }
}
