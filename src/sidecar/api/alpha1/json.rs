//! The JSON of alpha1's requests. It follows protojson, as daprd does: both spellings of a
//! name, numbers also as strings, null as absent, unknown names ignored, and an empty body
//! as an empty message.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Number, Value};

use super::Alpha1Error;

/// The body of a try.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase", expecting = "a JSON object")]
pub(super) struct TryLockBody {
    #[serde(alias = "store_name", deserialize_with = "text")]
    _store_name: String,
    #[serde(alias = "resource_id", deserialize_with = "text")]
    pub(super) resource_id: String,
    #[serde(alias = "lock_owner", deserialize_with = "text")]
    pub(super) lock_owner: String,
    #[serde(alias = "expiry_in_seconds", deserialize_with = "int32")]
    pub(super) expiry_in_seconds: i32,
}

/// The body of an unlock.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase", expecting = "a JSON object")]
pub(super) struct UnlockBody {
    #[serde(alias = "store_name", deserialize_with = "text")]
    _store_name: String,
    #[serde(alias = "resource_id", deserialize_with = "text")]
    pub(super) resource_id: String,
    #[serde(alias = "lock_owner", deserialize_with = "text")]
    pub(super) lock_owner: String,
}

/// Reads a body.
pub(super) fn read<T: Default + DeserializeOwned>(body: &[u8]) -> Result<T, Alpha1Error> {
    if body.is_empty() {
        return Ok(T::default());
    }
    // This also refuses an array, from which serde would read a struct.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Alpha1Error::Malformed("a JSON object was expected".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| Alpha1Error::Malformed(error.to_string()))
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(from)?.unwrap_or_default())
}

fn int32<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let number = match Value::deserialize(from)? {
        Value::Null => return Ok(0),
        Value::Number(number) => integer(&number),
        Value::String(text) => serde_json::from_str::<Number>(&text)
            .ok()
            .filter(|_| text.trim() == text)
            .as_ref()
            .and_then(integer),
        _ => None,
    };
    number.ok_or_else(|| serde::de::Error::custom("invalid value for a number of 32 bits"))
}

/// protojson takes 10, 10.0 and 1e1 for the same number.
#[allow(clippy::cast_possible_truncation, reason = "checked before: nothing is lost")]
fn integer(number: &Number) -> Option<i32> {
    if let Some(number) = number.as_i64() {
        return i32::try_from(number).ok();
    }
    let number = number.as_f64()?;
    let range = f64::from(i32::MIN)..=f64::from(i32::MAX);
    (number.fract() == 0.0 && range.contains(&number)).then_some(number as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(json: &str) -> Result<i32, Alpha1Error> {
        read::<TryLockBody>(json.as_bytes()).map(|body| body.expiry_in_seconds)
    }

    #[test]
    fn both_spellings_are_read_and_unknown_names_ignored() {
        for json in [
            r#"{"resourceId":"r","lockOwner":"o","expiryInSeconds":7,"x":[{}]}"#,
            r#"{"resource_id":"r","lock_owner":"o","expiry_in_seconds":"7","storeName":"s"}"#,
        ] {
            let body: TryLockBody = read(json.as_bytes()).unwrap();
            assert_eq!((&*body.resource_id, &*body.lock_owner), ("r", "o"));
            assert_eq!(body.expiry_in_seconds, 7);
        }
    }

    #[test]
    fn numbers_are_read_as_protojson_reads_them() {
        for json in ["7", "7.0", "70e-1", "\"7\"", "\"7.0\""] {
            assert_eq!(expiry(&format!(r#"{{"expiryInSeconds":{json}}}"#)), Ok(7), "{json}");
        }
        for json in ["7.5", "2147483648", "\" 7\"", "\"\"", "true", "[7]", "\"x\""] {
            let read = expiry(&format!(r#"{{"expiryInSeconds":{json}}}"#));
            assert!(matches!(read, Err(Alpha1Error::Malformed(_))), "{json}: {read:?}");
        }
    }

    #[test]
    fn an_empty_body_is_an_empty_message_and_null_is_absent() {
        assert_eq!(read::<TryLockBody>(b"").unwrap(), TryLockBody::default());
        let nulls = br#"{"resourceId":null,"lockOwner":null,"expiryInSeconds":null}"#;
        assert_eq!(read::<TryLockBody>(nulls).unwrap(), TryLockBody::default());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for json in [
            " ",
            "[]",
            "[\"s\",\"r\",\"o\",1]",
            "7",
            "{",
            "{} {}",
            "{\"resourceId\":7}",
            "null",
            r#"{"storeName":7}"#,
            r#"{"resourceId":"a","resource_id":"b"}"#,
        ] {
            let read = read::<TryLockBody>(json.as_bytes());
            assert!(matches!(read, Err(Alpha1Error::Malformed(_))), "{json}: {read:?}");
        }
    }
}
