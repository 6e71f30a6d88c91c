//! gRPC's messages as the core has them.

use std::time::Duration;

use leasehold_proto::locks as proto;
use tokio::time::Instant;

use super::LockCall;
use crate::lock::{FencingToken, Mode, Violation};

/// Reads a request for a lock, which has until `timeout` from now.
pub(super) fn lock_call(
    request: proto::LockRequest,
    timeout: Option<Duration>,
) -> Result<LockCall, Violation> {
    let arrived = Instant::now();
    Ok(LockCall {
        ttl: ttl(request.ttl.as_ref()),
        max_hold: request.max_hold.as_ref().map(|hold| max_hold(positive(hold))).transpose()?,
        mode: mode(request.mode)?,
        store_name: request.store_name,
        resource_id: request.resource_id,
        immediate: request.immediate,
        request_id: request.request_id,
        no_renewal: request.no_renewal,
        arrived,
        deadline: timeout.and_then(|timeout| arrived.checked_add(timeout)),
    })
}

/// A TTL that is absent or not positive means the store's default.
pub(super) fn ttl(wish: Option<&prost_types::Duration>) -> Option<Duration> {
    wish.and_then(positive)
}

/// A limit on the hold must be positive where there is one.
pub(super) fn max_hold(wish: Option<Duration>) -> Result<Duration, Violation> {
    wish.ok_or_else(|| {
        Violation::new("max_hold", "is not positive; leave it out to hold without limit")
    })
}

/// A duration of the domain as the wire has it.
pub(super) fn duration(duration: Duration) -> Option<prost_types::Duration> {
    duration.try_into().ok()
}

/// A token as the wire has it, where 0 stands for none.
pub(super) fn token(token: Option<FencingToken>) -> i64 {
    token.map_or(0, FencingToken::as_i64)
}

fn positive(duration: &prost_types::Duration) -> Option<Duration> {
    Duration::try_from(*duration).ok().filter(|duration| !duration.is_zero())
}

fn mode(mode: i32) -> Result<Mode, Violation> {
    match proto::LockMode::try_from(mode) {
        Ok(proto::LockMode::Exclusive) => Ok(Mode::Exclusive),
        Ok(proto::LockMode::Shared) => Ok(Mode::Shared),
        Err(_) => Err(Violation::new(
            "mode",
            format!("is {mode}; use LOCK_MODE_EXCLUSIVE (0) or LOCK_MODE_SHARED (1)"),
        )),
    }
}

/// The time that a call has by gRPC's own header: at most 8 digits and a unit.
/// What is malformed is taken as absent, as other servers do.
pub(super) fn grpc_timeout(headers: &tonic::metadata::MetadataMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;

    use super::*;

    fn timeout(text: &str) -> Option<Duration> {
        let mut headers = MetadataMap::new();
        headers.insert("grpc-timeout", text.parse().unwrap());
        grpc_timeout(&headers)
    }

    #[test]
    fn the_timeout_is_read_in_every_unit() {
        assert_eq!(timeout("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(timeout("2M"), Some(Duration::from_secs(120)));
        assert_eq!(timeout("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(timeout("5m"), Some(Duration::from_millis(5)));
        assert_eq!(timeout("5u"), Some(Duration::from_micros(5)));
        assert_eq!(timeout("5n"), Some(Duration::from_nanos(5)));
        for malformed in ["", "S", "1", "-1S", "123456789S", "1X", "1.5S"] {
            assert_eq!(timeout(malformed), None, "{malformed:?}");
        }
    }

    #[test]
    fn durations_that_are_not_positive_mean_the_default() {
        let of = |seconds, nanos| prost_types::Duration { seconds, nanos };
        assert_eq!(ttl(Some(&of(1, 500_000_000))), Some(Duration::from_millis(1500)));
        for default in [of(0, 0), of(-1, 0), of(0, -1), of(i64::MIN, 0)] {
            assert_eq!(ttl(Some(&default)), None, "{default:?}");
        }
    }

    #[test]
    fn an_unknown_mode_is_named() {
        let request = proto::LockRequest { mode: 7, ..Default::default() };
        assert_eq!(lock_call(request, None).unwrap_err().field, "mode");
        let request = proto::LockRequest {
            max_hold: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
            ..Default::default()
        };
        assert_eq!(lock_call(request, None).unwrap_err().field, "max_hold");
    }
}
