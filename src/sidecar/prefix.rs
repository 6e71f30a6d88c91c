//! Key prefixes: how the name that an app gives a resource becomes the store's name. It is
//! done exactly as daprd does it, so that locks of both exclude each other.

use crate::lock::Violation;

/// The metadata key, matched without regard to case.
pub const PROPERTY: &str = "keyPrefix";
const API: &str = "lock";
const SEPARATOR: &str = "||";

/// What is put between `lock||` and the resource.
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

    /// The store's name of `resource`; the violation names `resource_id`.
    pub fn apply(
        &self,
        resource: &str,
        store_name: &str,
        app_id: &str,
    ) -> Result<String, Violation> {
        refuse_separator("resource_id", resource)?;
        let between = match self {
            Self::AppId => app_id,
            Self::Name => store_name,
            Self::None => return Ok(format!("{API}{SEPARATOR}{resource}")),
            Self::Word(word) => word,
        };
        if between.is_empty() && *self == Self::AppId {
            return Ok(format!("{API}{SEPARATOR}{resource}"));
        }
        Ok(format!("{API}{SEPARATOR}{between}{SEPARATOR}{resource}"))
    }
}

/// The message is daprd's, because alpha1 passes it on.
fn refuse_separator(field: &str, key: &str) -> Result<(), Violation> {
    if key.contains(SEPARATOR) {
        return Err(Violation::new(
            field,
            format!("input key/keyPrefix '{key}' can't contain '{SEPARATOR}'"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_separator_is_refused_in_daprs_words() {
        let refused = KeyPrefix::default().apply("a||b", "store", "app").unwrap_err();
        assert_eq!(refused.field, "resource_id");
        assert_eq!(refused.problem, "input key/keyPrefix 'a||b' can't contain '||'");
        assert_eq!(KeyPrefix::new("a||b").unwrap_err().field, PROPERTY);
    }
}
