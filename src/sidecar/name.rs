//! The names that an app gives its resources: a key, alone or in a namespace.
//!
//! A name in a namespace is encoded as `||`, the segments joined by `/`, `//`, and the key,
//! where `%`, `/` and `|` of the segments and the key are percent-encoded: `k` in `a`, `b` is
//! `||a/b//k`. A plain key never contains `||`, because daprd refuses that, so no two names
//! have the same encoding (trap 29).

use std::str::FromStr;

use leasehold_lock::{ResourceId, Violation, check_text};
use leasehold_net::inspection::Named;

const FIELD: &str = "namespace";
/// How many segments a namespace may have.
const SEGMENTS_MAX: usize = 16;
/// Longest segment in bytes, before it is encoded.
const SEGMENT_BYTES_MAX: usize = 128;
/// Begins the encoding of a name in a namespace.
const BEGIN: &str = "||";
const BETWEEN_SEGMENTS: char = '/';
const BEFORE_KEY: &str = "//";

/// Up to 16 segments, the outermost first; without segments, no namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace(Vec<String>);

impl Namespace {
    /// Checks segments: 1 to 128 bytes each, without control characters. The
    /// violation names `namespace`.
    pub fn new(segments: Vec<String>) -> Result<Self, Violation> {
        if segments.len() > SEGMENTS_MAX {
            return Err(Violation::new(
                FIELD,
                format!("has {} segments; at most {SEGMENTS_MAX} are allowed", segments.len()),
            ));
        }
        for (at, segment) in segments.iter().enumerate() {
            let bad = |problem: &str| Violation::new(FIELD, format!("segment {at} {problem}"));
            if segment.is_empty() {
                return Err(bad("is empty; leave it out, or name it"));
            }
            check_text(FIELD, segment, SEGMENT_BYTES_MAX)
                .map_err(|violation| bad(&violation.problem))?;
        }
        Ok(Self(segments))
    }

    /// The segments, the outermost first.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }
}

/// A resource as its app names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceName {
    namespace: Namespace,
    key: ResourceId,
    encoded: ResourceId,
}

impl ResourceName {
    /// The name of `key` in `namespace`. The violation names `resource_id` or `namespace`.
    pub fn new(namespace: &Namespace, key: ResourceId) -> Result<Self, Violation> {
        if namespace.0.is_empty() {
            refuse_separator("resource_id", key.as_str())?;
            return Ok(Self { namespace: Namespace::default(), encoded: key.clone(), key });
        }
        let segments: Vec<_> = namespace.0.iter().map(|segment| encode(segment)).collect();
        let segments = segments.join("/");
        let encoded = format!("{BEGIN}{segments}{BEFORE_KEY}{}", encode(key.as_str()));
        let too_long = |violation: Violation| {
            let problem = format!("makes the name too long: encoded, it {}", violation.problem);
            Violation::new(FIELD, problem)
        };
        let encoded = ResourceId::new(&encoded).map_err(too_long)?;
        Ok(Self { namespace: namespace.clone(), key, encoded })
    }

    /// The namespace, without segments for a plain key.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The name within the namespace.
    #[must_use]
    pub fn key(&self) -> &ResourceId {
        &self.key
    }

    /// The whole name as it is written in a store's name; a plain key is unchanged. It is
    /// unique.
    #[must_use]
    pub fn encoded(&self) -> &ResourceId {
        &self.encoded
    }

    /// The name as messages have it.
    pub(crate) fn to_named(&self) -> Named {
        Named { resource_id: self.key.as_str().to_owned(), namespace: self.namespace.0.clone() }
    }

    /// Whether the name is in a namespace.
    #[must_use]
    pub fn has_namespace(&self) -> bool {
        !self.namespace.0.is_empty()
    }

    /// The inverse of [`ResourceName::encoded`]; `None` if the text is no valid encoding.
    #[must_use]
    pub fn decode(encoded: &ResourceId) -> Option<Self> {
        let Some(rest) = encoded.as_str().strip_prefix(BEGIN) else {
            return Self::new(&Namespace::default(), encoded.clone()).ok();
        };
        let (segments, key) = rest.split_once(BEFORE_KEY)?;
        let segments = segments.split(BETWEEN_SEGMENTS).map(decode);
        let namespace = Namespace::new(segments.collect()).ok()?;
        let name = Self::new(&namespace, ResourceId::new(&decode(key)).ok()?).ok()?;
        (name.encoded == *encoded).then_some(name)
    }
}

/// Selects names by namespace, with or without the namespaces below it, and by a prefix of
/// the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameScope {
    /// Without segments: the plain keys.
    pub namespace: Namespace,
    /// Whether the namespaces below it are included.
    pub children: bool,
    /// The prefix of the key.
    pub prefix: String,
}

impl NameScope {
    /// Whether the scope contains the name.
    #[must_use]
    pub fn has(&self, name: &ResourceName) -> bool {
        let (within, segments) = (name.namespace().segments(), self.namespace.segments());
        let is_there =
            if self.children { within.starts_with(segments) } else { within == segments };
        is_there && name.key().as_str().starts_with(&self.prefix)
    }

    /// The longest common beginning of the encodings of its names.
    pub(super) fn beginning(&self) -> String {
        let segments: Vec<_> = self.namespace.0.iter().map(|part| encode(part)).collect();
        let segments = segments.join("/");
        match (segments.as_str(), self.children) {
            ("", true) => String::new(),
            ("", false) => self.prefix.clone(),
            (segments, true) => format!("{BEGIN}{segments}{BETWEEN_SEGMENTS}"),
            (segments, false) => {
                format!("{BEGIN}{segments}{BEFORE_KEY}{}", encode(&self.prefix))
            }
        }
    }
}

/// A plain key, without a namespace.
impl FromStr for ResourceName {
    type Err = Violation;

    fn from_str(key: &str) -> Result<Self, Violation> {
        Self::new(&Namespace::default(), ResourceId::new(key)?)
    }
}

/// Refuses `||`, which separates the parts of a store's name. The message is daprd's,
/// because alpha1 passes it on.
pub(super) fn refuse_separator(field: &str, key: &str) -> Result<(), Violation> {
    if key.contains(BEGIN) {
        return Err(Violation::new(
            field,
            format!("input key/keyPrefix '{key}' can't contain '{BEGIN}'"),
        ));
    }
    Ok(())
}

fn encode(part: &str) -> String {
    // The percent sign first, because the other codes contain it.
    part.replace('%', "%25").replace('/', "%2F").replace('|', "%7C")
}

fn decode(part: &str) -> String {
    part.replace("%7C", "|").replace("%2F", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(segments: &[&str], key: &str) -> Result<ResourceName, Violation> {
        let segments = segments.iter().map(|&segment| segment.to_owned()).collect();
        ResourceName::new(&Namespace::new(segments)?, ResourceId::new(key)?)
    }

    #[test]
    fn a_name_in_a_namespace_is_encoded() {
        for (segments, key, encoded) in [
            (&[][..], "k", "k"),
            (&[], "a/b|c%", "a/b|c%"),
            (&["a", "b"], "k", "||a/b//k"),
            (&["a/b"], "k", "||a%2Fb//k"),
            (&["a"], "/k", "||a//%2Fk"),
            (&["100%", "|"], "x||y", "||100%25/%7C//x%7C%7Cy"),
            (&["%2F"], "%7C", "||%252F//%257C"),
        ] {
            assert_eq!(name(segments, key).unwrap().encoded().as_str(), encoded);
        }
    }

    #[test]
    fn a_plain_key_has_no_separator() {
        let refused = name(&[], "a||b").unwrap_err();
        assert_eq!(refused.field, "resource_id");
        assert_eq!(refused.problem, "input key/keyPrefix 'a||b' can't contain '||'");
    }

    #[test]
    fn a_bad_namespace_is_refused_by_its_name() {
        let long = "s".repeat(129);
        for bad in [&[""][..], &["a", ""], &[long.as_str()], &["a\nb"], &["\u{85}"], &["a"; 17]]
        {
            assert_eq!(name(bad, "k").unwrap_err().field, "namespace", "{bad:?}");
        }
        assert!(name(&["s"; 16], "k").is_ok() && name(&[&long[..128]], "k").is_ok());
    }

    #[test]
    fn the_encoded_name_has_at_most_1024_bytes() {
        let key = "k".repeat(1024 - "||a//".len());
        assert!(name(&["a"], &key).is_ok());
        assert_eq!(name(&["ab"], &key).unwrap_err().field, "namespace");
        // Encoded it is three times as long.
        assert_eq!(name(&["|".repeat(128).as_str(); 3], "k").unwrap_err().field, "namespace");
    }

    #[test]
    fn what_is_no_encoding_is_not_decoded() {
        for bad in [
            "||",
            "||a",
            "||a//",
            "||//k",
            "||a/b",
            "||a///k",
            "||/a//k",
            "||a//k/",
            "||a//|",
            "||a//%",
            "||a//%2f",
            "||a//%41",
            "||a|b//k",
            "||a//b//c",
            "a||b",
        ] {
            let bad = ResourceId::new(bad).unwrap();
            assert_eq!(ResourceName::decode(&bad), None, "{bad}");
        }
    }

    fn segments() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab%/|27CF]{1,4}", 0..4)
    }

    /// Keys that are likely to look like an encoding.
    fn key() -> impl Strategy<Value = String> {
        "[ab%/|27CF]{1,8}"
    }

    fn made(segments: &[String], key: &str) -> Option<ResourceName> {
        let segments: Vec<_> = segments.iter().map(String::as_str).collect();
        name(&segments, key).ok()
    }

    proptest! {
        /// So no two names have the same encoding.
        /// Trap: sidecar 29
        #[test]
        fn a_name_is_decoded_to_what_it_was_made_of(segments in segments(), key in key()) {
            let Some(name) = made(&segments, &key) else { return Ok(()) };
            prop_assert_eq!(ResourceName::decode(name.encoded()), Some(name.clone()));
            prop_assert_eq!(name.namespace().segments(), &segments[..]);
            prop_assert_eq!(name.key().as_str(), key);
        }

        #[test]
        fn what_is_decoded_is_the_encoding_of_its_parts(text in "\\|\\|[ab%/|27CF]{0,12}") {
            let text = ResourceId::new(&text).unwrap();
            let Some(name) = ResourceName::decode(&text) else { return Ok(()) };
            let again = ResourceName::new(name.namespace(), name.key().clone()).unwrap();
            prop_assert_eq!((again.encoded(), name.encoded()), (&text, &text));
        }
    }
}
