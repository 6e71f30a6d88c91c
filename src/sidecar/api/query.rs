//! The query of a URL.

use std::borrow::Cow;

use leasehold_lock::Violation;
use percent_encoding::percent_decode_str;

/// One `name=value` of a query.
pub(super) struct Pair<'a> {
    name: Cow<'a, str>,
    value: &'a str,
}

/// The pairs of a query, in their order. A part without `=` has an empty value.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = Pair<'_>> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        // A name that is not UTF-8 is no known name.
        Pair { name: text(name).unwrap_or(Cow::Borrowed("\u{fffd}")), value }
    })
}

/// The violation of an unknown parameter. If a misspelt one were ignored, another
/// resource would be locked.
pub(super) fn unknown(name: &str, known: &str) -> Violation {
    let field = if name.is_empty() { "query" } else { name };
    Violation::new(field, format!("is no parameter of this call; there is {known}"))
}

impl Pair<'_> {
    /// The name, decoded.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The value, decoded; the violation names `field`.
    pub(super) fn value(&self, field: &str) -> Result<String, Violation> {
        match text(self.value) {
            Some(value) => Ok(value.into_owned()),
            None => Err(Violation::new(field, "is not UTF-8")),
        }
    }
}

/// Decodes a part of a query, where a plus is a space; `None` if it is not UTF-8.
fn text(part: &str) -> Option<Cow<'_, str>> {
    if part.contains('+') {
        let spaced = part.replace('+', " ");
        return Some(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned().into());
    }
    percent_decode_str(part).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Vec<(String, Result<String, String>)> {
        let pair = |pair: Pair<'_>| {
            let value = pair.value("f").map_err(|violation| violation.field);
            (pair.name().to_owned(), value)
        };
        pairs(query).map(pair).collect()
    }

    #[test]
    fn pairs_are_decoded_in_their_order() {
        let expected = [("b", "1"), ("a b", "ü&=+"), ("b", ""), ("c", ""), ("d", "x=y")];
        let expected: Vec<_> =
            expected.map(|(name, value)| (name.to_owned(), Ok(value.to_owned()))).into();
        assert_eq!(read("b=1&a+b=%C3%BC%26%3D%2B&&b=&c&d=x=y"), expected);
        assert!(read("").is_empty());
    }

    #[test]
    fn what_is_not_utf_8_is_refused() {
        assert_eq!(read("a=%FF"), [("a".to_owned(), Err("f".to_owned()))]);
        assert_eq!(read("%FF=a")[0].0, "\u{fffd}");
    }
}
