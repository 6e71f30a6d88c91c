//! Durations, times and deadlines on the wire, for both edges.

use std::time::Duration;

use leasehold_lock::Violation;
use prost_types::{Duration as WireDuration, Timestamp};
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The range of a well-formed protobuf duration, in seconds.
const SECONDS_MAX: i64 = 315_576_000_000;

/// Writes a duration.
pub fn duration(duration: Duration) -> WireDuration {
    WireDuration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(SECONDS_MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// Writes a time of the wall clock, in milliseconds since the Unix epoch.
pub fn timestamp(unix_ms: u64) -> Timestamp {
    let since = Duration::from_millis(unix_ms);
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: since.subsec_nanos().cast_signed(),
    }
}

/// The deadline of a call: `grpc-timeout` counts from its arrival. The transport
/// ignores a malformed one, and so does this.
pub fn deadline(metadata: &MetadataMap, arrived: Instant) -> Option<Instant> {
    deadline_after(metadata.get("grpc-timeout")?.to_str().ok()?, arrived)
}

/// The deadline of a call whose `grpc-timeout` is `text`.
pub fn deadline_after(text: &str, arrived: Instant) -> Option<Instant> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || digits.starts_with('+') {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(amount * 3600),
        "M" => Duration::from_secs(amount * 60),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    };
    arrived.checked_add(timeout)
}

/// Reads a duration; `None` if it is absent or not positive. The violation of a malformed
/// one names `field`.
pub fn positive(
    field: &str,
    wish: Option<WireDuration>,
) -> Result<Option<Duration>, Violation> {
    let Some(WireDuration { seconds, nanos }) = wish else { return Ok(None) };
    let malformed = nanos.unsigned_abs() > 999_999_999
        || seconds.unsigned_abs() > SECONDS_MAX.unsigned_abs()
        || (seconds > 0 && nanos < 0)
        || (seconds < 0 && nanos > 0);
    if malformed {
        return Err(Violation::new(
            field,
            "is not a valid google.protobuf.Duration; nanos must be within a second and of the \
             sign of seconds",
        ));
    }
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if seconds > 0 || nanos > 0 => {
            Ok(Some(Duration::new(seconds, nanos)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(seconds: i64, nanos: i32) -> Option<WireDuration> {
        Some(WireDuration { seconds, nanos })
    }

    #[test]
    fn an_absent_or_non_positive_ttl_is_none() {
        for none in [None, wire(0, 0), wire(-5, 0), wire(-5, -1), wire(0, -1)] {
            assert_eq!(positive("ttl", none), Ok(None));
        }
        assert_eq!(positive("ttl", wire(1, 5)), Ok(Some(Duration::new(1, 5))));
    }

    #[test]
    fn a_malformed_ttl_is_refused_by_its_name() {
        for bad in [
            wire(1, -1),
            wire(-1, 1),
            wire(0, 1_000_000_000),
            wire(0, i32::MIN),
            wire(i64::MAX, 0),
            wire(i64::MIN, 0),
        ] {
            assert_eq!(positive("ttl", bad).unwrap_err().field, "ttl");
        }
    }

    #[test]
    fn a_time_within_a_second_has_nanoseconds() {
        let written = timestamp(1_500);
        assert_eq!((written.seconds, written.nanos), (1, 500_000_000));
    }

    #[tokio::test]
    async fn the_deadline_is_read_in_every_unit_of_grpc() {
        let now = Instant::now();
        for (text, ms) in
            [("1H", 3_600_000), ("2M", 120_000), ("3S", 3000), ("40m", 40), ("5000u", 5)]
        {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            let deadline = deadline(&metadata, now).unwrap();
            assert_eq!(deadline - now, Duration::from_millis(ms), "{text}");
        }
        for text in ["", "S", "123456789S", "5x", "-1S"] {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(deadline(&metadata, now), None, "{text:?}");
        }
    }
}
