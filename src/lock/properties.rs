//! Reads the properties of a component one by one, and reports all mistakes at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeInclusive,
    str::FromStr,
    time::Duration,
};

use leasehold_util::duration::parse_go_duration;

use crate::{Settings, Violation};

/// How similar a known key must be to an unknown one to be suggested.
const LIKENESS_MIN: f64 = 0.6;
/// A key, in lower case, on which daprd acts, and which it passes on all the same: every
/// resource ID has the prefix already.
const DAPRDS_OWN: &str = "keyprefix";

/// A component's metadata items while they are being read.
///
/// Keys are matched without regard to case, as Dapr does. A bad value is noted, and the
/// default is returned instead, so that [`Properties::finish`] reports every mistake.
/// `Debug` shows no value, because values can be secrets.
pub struct Properties {
    /// Lower-case key → the key as it was written, and its value.
    items: BTreeMap<String, (String, String)>,
    known: BTreeSet<&'static str>,
    violations: Vec<Violation>,
}

impl Properties {
    /// Takes the metadata items of one component.
    pub fn new(items: impl IntoIterator<Item = (String, String)>) -> Self {
        let items =
            items.into_iter().map(|(key, value)| (key.to_lowercase(), (key, value))).collect();
        Self { items, known: BTreeSet::new(), violations: Vec::new() }
    }

    /// A string; `None` if it is absent or empty.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        self.known.insert(key);
        let (_, value) = self.items.get(&key.to_lowercase())?;
        (!value.is_empty()).then(|| value.clone())
    }

    /// A string that must be present.
    pub fn required(&mut self, key: &'static str) -> String {
        self.text(key).unwrap_or_else(|| {
            self.refuse(key, "is missing");
            String::new()
        })
    }

    /// Two strings, neither of which is of use without the other.
    pub fn pair(&mut self, one: &'static str, other: &'static str) -> Option<(String, String)> {
        let (first, second) = (self.text(one), self.text(other));
        match (&first, &second) {
            (Some(_), None) => self.refuse(other, format!("is missing, though {one} is set")),
            (None, Some(_)) => self.refuse(one, format!("is missing, though {other} is set")),
            _ => {}
        }
        first.zip(second)
    }

    /// A Go duration such as `30s`, `1m30s` or `500ms`, within a range.
    pub fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        allowed: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(text) = self.text(key) else { return default };
        match parse_go_duration(&text) {
            Some(value) if allowed.contains(&value) => value,
            Some(_) => {
                let (min, max) = (allowed.start(), allowed.end());
                self.refuse(key, format!("must be from {min:?} to {max:?}"));
                default
            }
            None => {
                self.refuse(key, "is not a Go duration; write for example 30s, 1m30s or 500ms");
                default
            }
        }
    }

    /// A whole number within a range.
    pub fn number<T>(&mut self, key: &'static str, default: T, allowed: RangeInclusive<T>) -> T
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.text(key) else { return default };
        match text.trim().parse() {
            Ok(value) if allowed.contains(&value) => value,
            _ => {
                let (min, max) = (allowed.start(), allowed.end());
                self.refuse(key, format!("must be a whole number from {min} to {max}"));
                default
            }
        }
    }

    /// A boolean, in the spellings that Dapr accepts.
    pub fn flag(&mut self, key: &'static str, default: bool) -> bool {
        let Some(text) = self.text(key) else { return default };
        match text.trim().to_lowercase().as_str() {
            "y" | "yes" | "true" | "t" | "on" | "1" => true,
            "n" | "no" | "false" | "f" | "off" | "0" => false,
            _ => {
                self.refuse(key, "must be true or false");
                default
            }
        }
    }

    /// Accepts a key for compatibility, although it has no effect here.
    pub fn ignore(&mut self, key: &'static str) {
        self.known.insert(key);
    }

    /// Every key that was read. Tests compare them with a schema.
    pub fn known(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().copied()
    }

    /// Notes a mistake.
    pub fn refuse(&mut self, key: &'static str, problem: impl Into<String>) {
        self.violations.push(Violation::new(key, problem));
    }

    /// The settings that every store has, with their keys `ttl`, `maxTTL`,
    /// `maxWaiters`, `maxHolders` and `operationTimeout`.
    pub fn settings(&mut self) -> Settings {
        const MS: Duration = Duration::from_millis(1);
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let default = Settings::default();
        let ttl_max = self.duration("maxTTL", default.ttl_max, 100 * MS..=365 * DAY);
        let settings = Settings {
            ttl_max,
            ttl_default: self.duration("ttl", default.ttl_default.min(ttl_max), MS..=365 * DAY),
            waiters_per_resource_max: self.number(
                "maxWaiters",
                default.waiters_per_resource_max,
                1..=default.waiters_max,
            ),
            holders_per_resource_max: self.number(
                "maxHolders",
                default.holders_per_resource_max,
                1..=1_000_000,
            ),
            operation_timeout: self.duration(
                "operationTimeout",
                default.operation_timeout,
                100 * MS..=60_000 * MS,
            ),
            ..default
        };
        if settings.ttl_default > ttl_max {
            self.refuse(
                "ttl",
                format!("is above maxTTL ({ttl_max:?}); lower it or raise maxTTL"),
            );
        }
        settings
    }

    /// A warning for each key that was not read. It names the most similar known key,
    /// which may be missing because of it.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let items = self.items.iter().filter(|(lower, _)| *lower != DAPRDS_OWN);
        items.filter_map(|(lower, (key, _))| self.warning(lower, key)).collect()
    }

    /// Ends the reading, and returns every mistake.
    pub fn finish(self) -> Result<(), Vec<Violation>> {
        if self.violations.is_empty() { Ok(()) } else { Err(self.violations) }
    }

    fn warning(&self, lower: &str, key: &str) -> Option<String> {
        if self.known.iter().any(|known| known.to_lowercase() == lower) {
            return None;
        }
        if key.is_empty() {
            return Some(
                "a metadata item without a name is ignored; give it a name".to_owned(),
            );
        }
        Some(match nearest(lower, self.known()) {
            Some(known) => {
                format!("unknown metadata key {key:?} is ignored; did you mean {known:?}?")
            }
            None => format!("unknown metadata key {key:?} is ignored"),
        })
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.items.values().map(|(key, _)| key)).finish()
    }
}

/// The known key that is most similar to `text`, if one is similar enough.
#[must_use]
pub fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (strsim::jaro_winkler(&known.to_lowercase(), text), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(items: &[(&str, &str)]) -> Properties {
        Properties::new(items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn keys_are_matched_without_regard_to_case() {
        assert_eq!(properties(&[("REDISHOST", "h")]).text("redisHost").as_deref(), Some("h"));
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let mut read = properties(&[("ttl", "30"), ("maxWaiters", "0"), ("maxTTL", "-1s")]);
        let _ = read.settings();
        let _ = read.required("redisHost");
        let fields: Vec<_> =
            read.finish().unwrap_err().into_iter().map(|violation| violation.field).collect();
        assert_eq!(fields, ["maxTTL", "ttl", "maxWaiters", "redisHost"]);
    }

    #[test]
    fn an_unknown_key_is_a_warning_that_names_the_nearest_known_one() {
        let mut read = properties(&[("redisHots", "h"), ("zzz", "1")]);
        let _ = read.text("redisHost");
        let _ = read.required("endpoints");
        let warnings = read.warnings();
        assert!(warnings[0].contains("\"redisHost\""), "{warnings:?}");
        assert!(!warnings[1].contains("did you mean"), "{warnings:?}");
    }

    #[test]
    fn an_item_without_a_name_is_a_warning() {
        let warnings = properties(&[("", "h")]).warnings();
        assert!(warnings[0].contains("without a name"), "{warnings:?}");
    }

    #[test]
    fn the_key_that_daprd_itself_acts_on_is_no_warning() {
        assert!(properties(&[("keyPrefix", "name")]).warnings().is_empty());
    }

    #[test]
    fn a_default_ttl_above_the_maximum_is_refused() {
        let mut read = properties(&[("ttl", "2h"), ("maxTTL", "1h")]);
        let _ = read.settings();
        assert_eq!(read.finish().unwrap_err()[0].field, "ttl");
    }

    #[test]
    fn a_maximum_ttl_below_the_default_lowers_the_default() {
        let mut read = properties(&[("maxTTL", "10s")]);
        assert_eq!(read.settings().ttl_default, Duration::from_secs(10));
        assert!(read.finish().is_ok());
    }

    #[test]
    fn debug_shows_no_value() {
        assert!(
            !format!("{:?}", properties(&[("redisPassword", "hunter2")])).contains("hunter2")
        );
    }
}
