//! The metadata of components.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use leasehold_lock::{LockError, Violation, properties::Properties};
use leasehold_sidecar::app_names::AppNames;
use leasehold_testing::Input;
use leasehold_util::duration::{go_duration, parse_go_duration};

use crate::backend::KINDS;

/// A secret, which no error may contain.
const SECRET: &str = "hunter2";
const SECRET_KEYS: [&str; 6] =
    ["redispassword", "redisusername", "password", "key", "clientkey", "keyprefix"];

/// The first byte selects a built-in store. Then comes one metadata item a line, written
/// `key=value`; `\n` in a value stands for a line feed.
pub fn component_metadata(data: &[u8]) {
    let mut input = Input::new(data);
    let kinds = KINDS.built_in;
    let kind = kinds[usize::from(input.byte()) % kinds.len()];
    let mut items = Vec::new();
    while !input.is_empty() {
        let line = input.text();
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        items.push((key.to_owned(), value.replace("\\n", "\n")));
        duration(value);
    }
    let checked = kind.check(items.clone());
    assert_eq!(checked, kind.check(items.clone()), "the same items were checked differently");
    match &checked {
        Ok(_) => {}
        Err(LockError::InvalidMetadata(violations)) => named(violations),
        Err(other) => panic!("bad metadata became {other:?}"),
    }
    let is_secret = |key: &str| SECRET_KEYS.contains(&key.to_lowercase().as_str());
    let only_in_secrets = items
        .iter()
        .all(|(key, value)| is_secret(key) || !format!("{key}{value}").contains(SECRET));
    if only_in_secrets {
        let shown = format!("{checked:?}");
        assert!(!shown.contains(SECRET), "a secret is shown: {shown}");
    }
    limits(&items);
    let items = items.iter().map(|(key, value)| (&**key, &**value));
    if let Err(violation) = AppNames::of_items(items, "store", "app") {
        named(&[violation]);
    }
}

fn named(violations: &[Violation]) {
    assert!(!violations.is_empty(), "refused without a violation");
    for violation in violations {
        assert!(!violation.field.is_empty() && !violation.problem.is_empty(), "{violation:?}");
    }
}

/// All settings are within their limits: a value that is out of range is replaced.
fn limits(items: &[(String, String)]) {
    let mut properties = Properties::new(items.iter().cloned());
    let settings = properties.settings();
    if properties.finish().is_ok() {
        assert!(settings.ttl_default <= settings.ttl_max, "{settings:?}");
    }
    assert!((1..=settings.waiters_max).contains(&settings.waiters_per_resource_max));
    assert!((100..=60_000).contains(&settings.operation_timeout.as_millis()), "{settings:?}");
    assert!(settings.ttl_max.as_millis() >= 100, "{settings:?}");
}

/// A duration that was parsed can be written and parsed again without a change.
fn duration(text: &str) {
    let Some(duration) = parse_go_duration(text) else { return };
    let written = go_duration(duration);
    assert_eq!(parse_go_duration(&written), Some(duration), "{text:?} is written {written:?}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("component_metadata", super::component_metadata);
    }
}
