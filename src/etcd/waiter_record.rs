//! The values of the keys of waiters.

use leasehold_lock::{Attempt, Holder};
use serde::{Deserialize, Serialize};

use super::record::read_holder;

/// The value of a waiter's key, as JSON. It is only for inspection: the order and the
/// modes of the waiters are in their keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct WaiterRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    /// When the queue was entered, in milliseconds since the Unix epoch.
    #[serde(default, rename = "since", skip_serializing_if = "Option::is_none")]
    pub(super) since_unix_ms: Option<u64>,
}

impl WaiterRecord {
    /// The record of `attempt`, which enters the queue now.
    pub(super) fn of(attempt: &Attempt, now_unix_ms: u64) -> Self {
        Self {
            attempt: Some(attempt.id.to_string()),
            holder: attempt.holder.as_ref().map(|holder| holder.as_str().to_owned()),
            since_unix_ms: Some(now_unix_ms),
        }
    }

    /// Reads a value. Nothing is known of a waiter whose value is not one of ours.
    pub(super) fn decode(value: &[u8]) -> Self {
        serde_json::from_slice(value).unwrap_or_default()
    }

    /// The value.
    pub(super) fn encode(&self) -> String {
        // Strings and numbers can always be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The holder's name, if one was given.
    pub(super) fn holder(&self) -> Option<Holder> {
        read_holder(self.holder.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::attempt, *};

    #[test]
    fn a_waiters_record_has_holder_and_time() {
        let read =
            WaiterRecord::decode(WaiterRecord::of(&attempt("r"), 1_500).encode().as_bytes());
        assert_eq!(read.holder().unwrap().as_str(), "app \"1\"");
        assert_eq!(read.since_unix_ms, Some(1_500));
    }

    #[test]
    fn nothing_is_known_of_a_waiter_with_another_value() {
        for value in [&b""[..], b"5e0c", b"\xff", b"{\"holder\":1}"] {
            let read = WaiterRecord::decode(value);
            assert!(read.holder().is_none() && read.since_unix_ms.is_none());
        }
    }
}
