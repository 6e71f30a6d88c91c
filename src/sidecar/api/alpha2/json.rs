//! The JSON of alpha2 over HTTP. Every field of a request is optional, unknown fields
//! are refused, and durations are Go durations. An error names the invalid field.

use std::collections::HashMap;

use go_duration::GoDuration;
use leasehold_lock::{Granted, Violation, properties::nearest};
use leasehold_net::wire::{grant_id, token};
use leasehold_proto::locks::LockMode;
use leasehold_util::duration::go_duration;
use prost_types::Duration as WireDuration;
use serde_json::{Map, Value, json};

/// An unknown field with a longer name is not quoted in the error.
const NAME_BYTES_MAX: usize = 64;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// A request's JSON object. Fields are taken out by name; at the end, none may be left.
pub(super) struct Fields {
    object: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads a body; an empty one is an empty object.
    pub(super) fn read(body: &[u8]) -> Result<Self, Violation> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::of(Map::new()));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(object)) => Ok(Self::of(object)),
            Ok(_) => Err(Violation::new("body", "is not a JSON object")),
            Err(error) => Err(Violation::new("body", format!("is not JSON: {error}"))),
        }
    }

    fn of(object: Map<String, Value>) -> Self {
        Self { object, known: Vec::new() }
    }

    /// Refuses the fields that were not taken. If a misspelt field were ignored, a call could
    /// wait without end, for example.
    pub(super) fn end(self) -> Result<(), Violation> {
        let Some(name) = self.object.keys().next() else { return Ok(()) };
        let field = if name.is_empty() || name.len() > NAME_BYTES_MAX { "body" } else { name };
        let problem = match nearest(&name.to_lowercase(), self.known.iter().copied()) {
            Some(nearest) => format!("is no field of this call; did you mean {nearest:?}?"),
            None => format!("is no field of this call; there is {}", self.known.join(", ")),
        };
        Err(Violation::new(field, problem))
    }

    /// `None` where the field is absent or null.
    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.object.remove(name).filter(|value| !value.is_null())
    }

    /// A text, empty where absent.
    pub(super) fn text(&mut self, name: &'static str) -> Result<String, Violation> {
        match self.take(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(Violation::new(name, "must be a string")),
        }
    }

    /// A text, not empty if given. For selecting one of several: a script with an unset
    /// variable must not select all.
    pub(super) fn selecting_text(&mut self, name: &'static str) -> Result<String, Violation> {
        let is_given = self.object.contains_key(name);
        let text = self.text(name)?;
        if text.is_empty() && is_given {
            return Err(Violation::new(name, "is empty; give it, or leave it out to mean all"));
        }
        Ok(text)
    }

    /// A boolean, false where absent.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, Violation> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Violation::new(name, "must be true or false")),
        }
    }

    /// A Go duration.
    pub(super) fn duration(
        &mut self,
        name: &'static str,
    ) -> Result<Option<WireDuration>, Violation> {
        let text = match self.take(name) {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(_) => String::new(),
        };
        match text.trim().parse::<GoDuration>() {
            Ok(duration) => {
                let ns = duration.nanoseconds();
                let nanos = i32::try_from(ns % NANOS_PER_SECOND).unwrap_or_default();
                Ok(Some(WireDuration { seconds: ns / NANOS_PER_SECOND, nanos }))
            }
            _ => Err(Violation::new(
                name,
                "must be a Go duration in a string, for example \"30s\", \"1m30s\" or \"500ms\"",
            )),
        }
    }

    /// Whether other grants may coexist with it.
    pub(super) fn mode(&mut self) -> Result<LockMode, Violation> {
        match self.text("mode")?.as_str() {
            "" | "exclusive" => Ok(LockMode::Exclusive),
            "shared" => Ok(LockMode::Shared),
            _ => Err(Violation::new("mode", "must be \"exclusive\" or \"shared\"")),
        }
    }

    /// Texts by name, none where absent.
    pub(super) fn texts_by_name(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<String, String>, Violation> {
        match self.take(name) {
            None => Some(HashMap::new()),
            Some(Value::Object(items)) => {
                items.into_iter().map(|(key, value)| Some((key, text(value)?))).collect()
            }
            Some(_) => None,
        }
        .ok_or_else(|| Violation::new(name, "must be an object of strings"))
    }

    /// Objects in an array; `None` where absent.
    pub(super) fn objects(
        &mut self,
        name: &'static str,
    ) -> Result<Option<Vec<Self>>, Violation> {
        self.array(name, "must be an array of objects", |value| match value {
            Value::Object(object) => Some(Self::of(object)),
            _ => None,
        })
    }

    /// Texts in an array, none where absent.
    pub(super) fn texts(&mut self, name: &'static str) -> Result<Vec<String>, Violation> {
        Ok(self.array(name, "must be an array of strings", text)?.unwrap_or_default())
    }

    fn array<T>(
        &mut self,
        name: &'static str,
        problem: &str,
        read: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Violation> {
        let items = match self.take(name) {
            None => return Ok(None),
            Some(Value::Array(values)) => values.into_iter().map(read).collect(),
            Some(_) => None,
        };
        items.map(Some).ok_or_else(|| Violation::new(name, problem))
    }

    /// Refuses a namespace in the body: it belongs in the URL.
    pub(super) fn check_no_namespace(&self) -> Result<(), Violation> {
        match self.object.get("namespace") {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(Violation::new(
                "namespace",
                "is part of the URL; write it there as ?namespace=a&namespace=b",
            )),
        }
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// A grant, in a response and in a line of a stream.
pub(super) fn of_grant(granted: &Granted) -> Value {
    json!({
        "lockID": granted.lock_id.as_str(),
        "grantID": grant_id(granted.id),
        "fencingToken": token(granted.token),
        "ttl": go_duration(granted.ttl),
        "waited": go_duration(granted.waited),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
            let read = fields(&format!(r#"{{"ttl":"{text}"}}"#)).duration("ttl").unwrap();
            assert_eq!(read.unwrap().try_into(), Ok(duration), "{text}");
            assert_eq!(go_duration(duration), text);
        }
        assert_eq!(go_duration(Duration::ZERO), "0s");
        let negative = fields(r#"{"ttl":"-1.5s"}"#).duration("ttl").unwrap();
        assert_eq!(negative, Some(WireDuration { seconds: -1, nanos: -500_000_000 }));
    }

    #[test]
    fn what_is_null_is_absent() {
        for json in ["{}", r#"{"ttl":null,"lockID":null}"#] {
            let mut fields = fields(json);
            assert_eq!(
                (fields.duration("ttl"), fields.text("lockID")),
                (Ok(None), Ok("".into()))
            );
            fields.end().unwrap();
        }
        assert!(Fields::read(b"").is_ok() && Fields::read(b" \n").is_ok());
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_nearest_known_name() {
        let end = |json: &str| {
            let mut fields = fields(json);
            fields.flag("immediate").and(fields.duration("wait")).unwrap();
            fields.end()
        };
        let refused = |json: &str| end(json).expect_err("it was accepted");
        let misspelt = refused(r#"{"wait":"1s","imediate":true}"#);
        assert_eq!(misspelt.field, "imediate");
        assert!(misspelt.problem.ends_with("did you mean \"immediate\"?"), "{misspelt:?}");
        assert!(refused(r#"{"Wait":"1s"}"#).problem.contains("\"wait\""));
        assert!(refused(r#"{"zzz":1}"#).problem.ends_with("there is immediate, wait"));
        assert_eq!(refused(&format!("{{\"{}\":1}}", "x".repeat(65))).field, "body");
        end(r#"{"wait":"1s"}"#).unwrap();
    }

    #[test]
    fn a_bad_field_is_named() {
        for json in ["7", "\"30\"", "\"\"", "\"30sX\"", "\"s\"", "true", "[]"] {
            let mut fields = fields(&format!(r#"{{"ttl":{json}}}"#));
            assert_eq!(bad_field(fields.duration("ttl")), "ttl", "{json}");
        }
        assert_eq!(bad_field(fields(r#"{"mode":"both"}"#).mode()), "mode");
        assert_eq!(bad_field(fields(r#"{"immediate":"yes"}"#).flag("immediate")), "immediate");
        assert_eq!(bad_field(fields(r#"{"lockID":7}"#).text("lockID")), "lockID");
        assert_eq!(bad_field(fields(r#"{"a":{"b":1}}"#).texts_by_name("a")), "a");
        for json in ["7", "{}", "[7]", "[[]]", "[null]"] {
            let fields = || fields(&format!(r#"{{"a":{json}}}"#));
            assert_eq!(bad_field(fields().objects("a")), "a", "{json}");
            assert_eq!(bad_field(fields().texts("a")), "a", "{json}");
        }
        for body in ["[]", "7", "{", "\u{1}"] {
            assert_eq!(bad_field(Fields::read(body.as_bytes())), "body", "{body:?}");
        }
    }
}
