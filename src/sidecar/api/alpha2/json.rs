//! The JSON of alpha2 over HTTP. Every field of a request is optional, unknown fields
//! are refused, and durations are Go durations. An error names the bad field.

use std::time::Duration;

use go_duration::GoDuration;
use serde_json::{Map, Value, json};

use super::wire;
use crate::{
    config::properties::nearest,
    lock::{Granted, Mode, Violation},
};

/// A longer name of an unknown field is not repeated in the error.
const NAME_BYTES_MAX: usize = 64;

/// A request's JSON object.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a body; an empty one is an empty object.
    pub(super) fn read(body: &[u8]) -> Result<Self, Violation> {
        if body.trim_ascii().is_empty() {
            return Ok(Self(Map::new()));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Violation::new("body", "is not a JSON object")),
            Err(error) => Err(Violation::new("body", format!("is not JSON: {error}"))),
        }
    }

    /// Refuses fields other than these: a misspelt one would otherwise be ignored, and the call
    /// wait without end, for example.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Violation> {
        let Some(name) = self.0.keys().find(|name| !known.contains(&name.as_str())) else {
            return Ok(self);
        };
        let field = if name.is_empty() || name.len() > NAME_BYTES_MAX { "body" } else { name };
        let problem = match nearest(&name.to_lowercase(), known.iter().copied()) {
            Some(nearest) => format!("is no field of this call; did you mean {nearest:?}?"),
            None => format!("is no field of this call; there is {}", known.join(", ")),
        };
        Err(Violation::new(field, problem))
    }

    /// A text, empty where absent.
    pub(super) fn text(&self, name: &str) -> Result<String, Violation> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Violation::new(name, "must be a string")),
        }
    }

    /// A text that is not empty if it is given. For what selects one of several: a script
    /// whose variable is unset must not select all.
    pub(super) fn selecting_text(&self, name: &str) -> Result<String, Violation> {
        let text = self.text(name)?;
        if text.is_empty() && self.0.contains_key(name) {
            return Err(Violation::new(name, "is empty; give it, or leave it out to mean all"));
        }
        Ok(text)
    }

    /// A boolean, false where absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Violation> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Violation::new(name, "must be true or false")),
        }
    }

    /// A TTL; absent or not positive means the store's default.
    pub(super) fn ttl(&self) -> Result<Option<Duration>, Violation> {
        Ok(self.duration_ns("ttl")?.filter(|ns| *ns > 0).map(from_ns))
    }

    /// How long a call may wait; absent means without end.
    pub(super) fn wait(&self) -> Result<Option<Duration>, Violation> {
        match self.duration_ns("wait")? {
            Some(ns) if ns < 0 => Err(wire::negative_wait()),
            wait => Ok(wait.map(from_ns)),
        }
    }

    /// After how long the lock is released; absent means never.
    pub(super) fn max_hold(&self) -> Result<Option<Duration>, Violation> {
        match self.duration_ns("maxHold")? {
            Some(ns) if ns <= 0 => Err(Violation::new("maxHold", wire::no_hold().problem)),
            max_hold => Ok(max_hold.map(from_ns)),
        }
    }

    /// Whether other grants may coexist with it.
    pub(super) fn mode(&self) -> Result<Mode, Violation> {
        match self.text("mode")?.as_str() {
            "" | "exclusive" => Ok(Mode::Exclusive),
            "shared" => Ok(Mode::Shared),
            _ => Err(Violation::new("mode", "must be \"exclusive\" or \"shared\"")),
        }
    }

    /// Checks the metadata, which no store reads yet.
    pub(super) fn check_metadata(&self) -> Result<(), Violation> {
        match self.0.get("metadata") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Object(items)) if items.values().all(Value::is_string) => Ok(()),
            Some(_) => Err(Violation::new("metadata", "must be an object of strings")),
        }
    }

    /// Objects in an array; `None` where absent.
    pub(super) fn objects(&self, name: &str) -> Result<Option<Vec<Self>>, Violation> {
        self.array(name, "must be an array of objects", |value| match value {
            Value::Object(fields) => Some(Self(fields.clone())),
            _ => None,
        })
    }

    /// Texts in an array, none where absent.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Violation> {
        let texts = self.array(name, "must be an array of strings", |value| {
            value.as_str().map(ToOwned::to_owned)
        })?;
        Ok(texts.unwrap_or_default())
    }

    fn array<T>(
        &self,
        name: &str,
        problem: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Violation> {
        let refused = || Violation::new(name, problem);
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(values)) => {
                values.iter().map(read).collect::<Option<_>>().map(Some).ok_or_else(refused)
            }
            Some(_) => Err(refused()),
        }
    }

    /// Checks that the namespace is not here instead of in the URL.
    pub(super) fn check_no_namespace(&self) -> Result<(), Violation> {
        match self.0.get("namespace") {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Violation::new(
                "namespace",
                "is part of the URL; write it there as ?namespace=a&namespace=b",
            )),
        }
    }

    fn duration_ns(&self, name: &str) -> Result<Option<i64>, Violation> {
        let text = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.trim(),
            Some(_) => "",
        };
        match text.parse::<GoDuration>() {
            Ok(duration) if !text.is_empty() => Ok(Some(duration.nanoseconds())),
            _ => Err(Violation::new(
                name,
                "must be a Go duration in a string, for example \"30s\", \"1m30s\" or \"500ms\"",
            )),
        }
    }
}

/// A grant, in a response and in a line of a stream.
pub(super) fn of_grant(granted: &Granted) -> Value {
    json!({
        "lockID": granted.lock_id.as_str(),
        "grantID": wire::grant_id(granted.id),
        "fencingToken": wire::token(granted.token),
        "ttl": go_duration(granted.ttl),
        "waited": go_duration(granted.waited),
    })
}

/// A duration as Go writes it.
pub(crate) fn go_duration(duration: Duration) -> String {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

fn from_ns(ns: i64) -> Duration {
    Duration::from_nanos(ns.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        Fields::read(json.as_bytes()).unwrap()
    }

    fn bad_field<T>(result: Result<T, Violation>) -> String {
        let Err(violation) = result else { panic!("it was accepted") };
        violation.field
    }

    #[test]
    fn durations_are_go_durations_both_ways() {
        for (text, duration) in [
            ("30s", Duration::from_secs(30)),
            ("1m30s", Duration::from_secs(90)),
            ("100ms", Duration::from_millis(100)),
            ("1.5s", Duration::from_millis(1500)),
            ("24h0m0s", Duration::from_secs(86_400)),
        ] {
            let read = fields(&format!(r#"{{"ttl":"{text}"}}"#)).ttl().unwrap();
            assert_eq!(read, Some(duration), "{text}");
            assert_eq!(go_duration(duration), text);
        }
        assert_eq!(go_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn what_is_absent_null_or_not_positive_means_the_default() {
        for json in ["{}", r#"{"ttl":null}"#, r#"{"ttl":"0s"}"#, r#"{"ttl":"-1s"}"#] {
            assert_eq!(fields(json).ttl().unwrap(), None, "{json}");
        }
        assert!(Fields::read(b"").is_ok() && Fields::read(b" \n").is_ok());
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_name() {
        let known = ["immediate", "wait"];
        let refused = |json| fields(json).only(&known).err().expect("it was accepted");
        let misspelt = refused(r#"{"wait":"1s","imediate":true}"#);
        assert_eq!(misspelt.field, "imediate");
        assert!(misspelt.problem.ends_with("did you mean \"immediate\"?"), "{misspelt:?}");
        assert!(refused(r#"{"Wait":"1s"}"#).problem.contains("\"wait\""));
        assert!(refused(r#"{"zzz":1}"#).problem.ends_with("there is immediate, wait"));
        assert_eq!(refused(&format!("{{\"{}\":1}}", "x".repeat(65))).field, "body");
        assert!(fields(r#"{"wait":"1s"}"#).only(&known).is_ok());
    }

    #[test]
    fn a_bad_field_is_named() {
        for json in ["7", "\"30\"", "\"\"", "\"30sX\"", "\"s\"", "true", "[]"] {
            let fields = fields(&format!(r#"{{"ttl":{json},"wait":{json},"maxHold":{json}}}"#));
            assert_eq!(bad_field(fields.ttl()), "ttl", "{json}");
            assert_eq!(bad_field(fields.wait()), "wait", "{json}");
            assert_eq!(bad_field(fields.max_hold()), "maxHold", "{json}");
        }
        assert_eq!(bad_field(fields(r#"{"wait":"-1s"}"#).wait()), "wait");
        assert_eq!(bad_field(fields(r#"{"maxHold":"0s"}"#).max_hold()), "maxHold");
        assert_eq!(bad_field(fields(r#"{"mode":"both"}"#).mode()), "mode");
        assert_eq!(bad_field(fields(r#"{"immediate":"yes"}"#).flag("immediate")), "immediate");
        assert_eq!(bad_field(fields(r#"{"lockID":7}"#).text("lockID")), "lockID");
        assert_eq!(bad_field(fields(r#"{"metadata":{"a":1}}"#).check_metadata()), "metadata");
        for json in ["7", "{}", "[7]", "[[]]", "[null]"] {
            let fields = fields(&format!(r#"{{"a":{json}}}"#));
            assert_eq!(bad_field(fields.objects("a")), "a", "{json}");
            assert_eq!(bad_field(fields.texts("a")), "a", "{json}");
        }
        for body in ["[]", "7", "{", "\u{1}"] {
            assert_eq!(bad_field(Fields::read(body.as_bytes())), "body", "{body:?}");
        }
    }
}
