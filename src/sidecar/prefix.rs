//! Key prefixes: the mapping of an app's resource names to the store's names. It is
//! exactly daprd's, so that locks of both exclude each other.

use leasehold_lock::{ResourceId, Violation};

use super::name::{ResourceName, refuse_separator};

/// The metadata key, matched without regard to case.
pub const PROPERTY: &str = "keyPrefix";
const API: &str = "lock";
const SEPARATOR: &str = "||";

/// The part between `lock||` and the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyPrefix {
    /// The app's ID, or nothing if that is empty. This is Dapr's default.
    #[default]
    AppId,
    /// The store's name.
    Name,
    /// Nothing.
    None,
    /// This word.
    Word(String),
}

impl KeyPrefix {
    /// Reads the value of `keyPrefix`, in lower case as daprd does. The violation names
    /// that key.
    pub fn new(value: &str) -> Result<Self, Violation> {
        let value = value.to_lowercase();
        refuse_separator(PROPERTY, &value)?;
        Ok(match value.as_str() {
            "appid" => Self::AppId,
            "name" => Self::Name,
            "none" => Self::None,
            _ => Self::Word(value),
        })
    }

    /// The prefix of a component with these metadata items.
    pub fn of<'a>(
        items: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Violation> {
        items
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(PROPERTY))
            .map_or_else(|| Ok(Self::default()), |(_, value)| Self::new(value))
    }

    /// The store's name of the plain key `resource`, as daprd makes it; the violation names
    /// `resource_id`.
    pub fn apply(
        &self,
        resource: &str,
        store_name: &str,
        app_id: &str,
    ) -> Result<String, Violation> {
        refuse_separator("resource_id", resource)?;
        Ok(self.join(resource, store_name, app_id))
    }

    /// The store's name of a resource; the violation names `resource_id`, or `namespace` if
    /// the prefix cannot separate a name in a namespace from the names of other apps.
    pub fn apply_to(
        &self,
        name: &ResourceName,
        store_name: &str,
        app_id: &str,
    ) -> Result<ResourceId, Violation> {
        if name.has_namespace() && !self.separates(store_name, app_id) {
            return Err(no_namespaces());
        }
        ResourceId::new(&self.join(name.encoded().as_str(), store_name, app_id))
    }

    /// The store's name of the app's `resource`, which is not checked.
    pub(super) fn join(&self, resource: &str, store_name: &str, app_id: &str) -> String {
        match self.between(store_name, app_id) {
            None => format!("{API}{SEPARATOR}{resource}"),
            Some(between) => format!("{API}{SEPARATOR}{between}{SEPARATOR}{resource}"),
        }
    }

    /// The part between `lock||` and the resource, if there is one.
    fn between<'a>(&'a self, store_name: &'a str, app_id: &'a str) -> Option<&'a str> {
        match self {
            Self::AppId => (!app_id.is_empty()).then_some(app_id),
            Self::Name => Some(store_name),
            Self::None => None,
            Self::Word(word) => Some(word),
        }
    }

    /// Whether names in a namespace cannot collide with those of other apps.
    pub(super) fn separates(&self, store_name: &str, app_id: &str) -> bool {
        let between = self.between(store_name, app_id);
        between.is_none_or(|between| !between.is_empty() && !between.contains('|'))
    }
}

/// The refusal of a namespace where the prefix cannot separate it from other names.
pub(super) fn no_namespaces() -> Violation {
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

    use super::*;
    use crate::name::Namespace;

    fn key(prefix: &str, app_id: &str) -> String {
        KeyPrefix::new(prefix).unwrap().apply("r", "store", app_id).unwrap()
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
        assert_eq!(KeyPrefix::of([("redisHost", "h")]).unwrap(), KeyPrefix::AppId);
        assert_eq!(KeyPrefix::of([("KEYPREFIX", "name")]).unwrap(), KeyPrefix::Name);
    }

    fn in_namespace(prefix: &str, app_id: &str) -> Result<String, Violation> {
        let namespace = Namespace::new(vec!["a".into(), "b".into()]).unwrap();
        let name = ResourceName::new(&namespace, "k".parse().unwrap()).unwrap();
        let name = KeyPrefix::new(prefix).unwrap().apply_to(&name, "store", app_id)?;
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
        assert!(KeyPrefix::AppId.apply_to(&name(&key), "store", "app").is_ok());
        let longer = name(&(key + "k"));
        let refused = KeyPrefix::AppId.apply_to(&longer, "store", "app").unwrap_err();
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
                    let name = KeyPrefix::AppId.apply_to(&name, "store", app_id).unwrap();
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
        let refused = KeyPrefix::default().apply("a||b", "store", "app").unwrap_err();
        assert_eq!(refused.field, "resource_id");
        assert_eq!(refused.problem, "input key/keyPrefix 'a||b' can't contain '||'");
        assert_eq!(KeyPrefix::new("a||b").unwrap_err().field, PROPERTY);
    }
}
