//! Durations, times, deadlines and modes on the wire, for both edges.

use std::time::Duration;

use http::{Extensions, HeaderMap};
use leasehold_lock::{FencingToken, GrantId, Mode, Violation};
use leasehold_proto::locks::LockMode;
use prost_types::{Duration as WireDuration, Timestamp};
use tokio::time::Instant;

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

/// When a call arrived, and when its caller gives up. The server notes it in the extensions of a
/// request, so that it is read once.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When it arrived.
    pub at: Instant,
    /// Its deadline; `None` if it has none.
    pub deadline: Option<Instant>,
}

impl Arrival {
    /// A call with these headers that arrives now. `grpc-timeout` counts from its arrival. The
    /// transport ignores a malformed one, and so does this.
    #[must_use]
    pub fn now(headers: &HeaderMap) -> Self {
        let at = Instant::now();
        let timeout = headers.get("grpc-timeout").and_then(|text| timeout(text.to_str().ok()?));
        Self { at, deadline: timeout.and_then(|timeout| at.checked_add(timeout)) }
    }

    /// What the server noted. Without a server, the call arrives now.
    #[must_use]
    pub fn of(extensions: &Extensions, headers: &HeaderMap) -> Self {
        extensions.get().copied().unwrap_or_else(|| Self::now(headers))
    }

    /// Like [`Arrival::of`], for a gRPC call.
    #[must_use]
    pub fn of_call<T>(request: &tonic::Request<T>) -> Self {
        Self::of(request.extensions(), request.metadata().as_ref())
    }
}

/// Reads a `grpc-timeout`.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || digits.starts_with('+') {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// Reads a mode; the violation names `mode`.
pub fn mode(mode: i32) -> Result<Mode, Violation> {
    match LockMode::try_from(mode) {
        Ok(LockMode::Exclusive) => Ok(Mode::Exclusive),
        Ok(LockMode::Shared) => Ok(Mode::Shared),
        Err(_) => Err(Violation::new(
            "mode",
            format!("is {mode}; use LOCK_MODE_EXCLUSIVE (0) or LOCK_MODE_SHARED (1)"),
        )),
    }
}

/// Writes the public ID of a grant; empty if the store's grants have none.
#[must_use]
pub fn grant_id(id: Option<GrantId>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

/// Writes a token, where 0 means none.
#[must_use]
pub fn token(token: Option<FencingToken>) -> i64 {
    token.map_or(0, FencingToken::as_i64)
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

    #[test]
    fn an_unknown_mode_is_refused_by_its_name() {
        assert_eq!(mode(2).unwrap_err().field, "mode");
        assert_eq!(mode(1), Ok(Mode::Shared));
    }

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

    #[tokio::test(start_paused = true)]
    async fn the_deadline_is_read_in_every_unit_of_grpc() {
        let within = |text: &str| {
            let headers =
                [(http::HeaderName::from_static("grpc-timeout"), text.parse().unwrap())];
            let arrival = Arrival::now(&headers.into_iter().collect());
            arrival.deadline.map(|deadline| deadline - arrival.at)
        };
        for (text, ms) in
            [("1H", 3_600_000), ("2M", 120_000), ("3S", 3000), ("40m", 40), ("5000u", 5)]
        {
            assert_eq!(within(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "S", "123456789S", "5x", "-1S"] {
            assert_eq!(within(text), None, "{text:?}");
        }
    }
}
