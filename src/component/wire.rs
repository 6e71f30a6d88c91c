//! Between the protocol's messages and the domain's requests.

use std::time::Duration;

use leasehold_proto::components as pb;
use prost_types::Duration as WireDuration;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

use crate::lock::{
    AcquireRequest, FencingToken, Granted, Mode, RenewRequest, UnlockRequest, Violation,
};

/// The metadata that names the instance; absent means the unnamed one.
pub(super) const INSTANCE: &str = "x-component-instance";

/// The longest instance name in bytes; Kubernetes allows 253.
const INSTANCE_BYTES_MAX: usize = 256;

/// The range of a well-formed protobuf duration, in seconds.
const SECONDS_MAX: i64 = 315_576_000_000;

/// Reads a request to lock that arrived at `arrived`.
pub(super) fn acquire(
    request: pb::LockRequest,
    arrived: Instant,
    deadline: Option<Instant>,
) -> Result<AcquireRequest, Violation> {
    Ok(AcquireRequest {
        ttl: positive("ttl", request.ttl)?,
        mode: mode(request.mode)?,
        resource_id: request.resource_id,
        lock_id: request.lock_id,
        request_id: request.request_id,
        holder: request.holder,
        arrived,
        deadline,
    })
}

/// Reads a renewal.
pub(super) fn renew(request: pb::RenewLockRequest) -> Result<RenewRequest, Violation> {
    Ok(RenewRequest {
        ttl: positive("ttl", request.ttl)?,
        resource_id: request.resource_id,
        lock_id: request.lock_id,
    })
}

/// Reads an unlock.
pub(super) fn unlock(request: pb::UnlockRequest) -> UnlockRequest {
    UnlockRequest {
        resource_id: request.resource_id,
        lock_id: request.lock_id,
        force: request.force,
    }
}

/// Writes a grant.
pub(super) fn granted(granted: &Granted) -> pb::LockResponse {
    pb::LockResponse {
        lock_id: granted.lock_id.as_str().to_owned(),
        fencing_token: granted.token.map_or(0, FencingToken::as_i64),
        ttl: Some(duration(granted.ttl)),
        waited: Some(duration(granted.waited)),
    }
}

/// Writes a duration.
pub(crate) fn duration(duration: Duration) -> WireDuration {
    WireDuration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(SECONDS_MAX),
        nanos: duration.subsec_nanos().cast_signed(),
    }
}

/// The instance that a call is for.
pub(super) fn instance(metadata: &MetadataMap) -> Result<&str, Violation> {
    let Some(name) = metadata.get(INSTANCE) else { return Ok("") };
    let name = name
        .to_str()
        .map_err(|_| Violation::new(INSTANCE, "must be ASCII, as component names are"))?;
    if name.len() > INSTANCE_BYTES_MAX {
        return Err(Violation::new(
            INSTANCE,
            format!("has {} bytes; at most {INSTANCE_BYTES_MAX} are allowed", name.len()),
        ));
    }
    Ok(name)
}

/// The deadline that a call came with: `grpc-timeout` counts from its arrival.
/// A malformed one is as good as none, as the transport has it.
pub(crate) fn deadline(metadata: &MetadataMap, arrived: Instant) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
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

/// Reads a duration: one that is absent or not positive is none, a malformed
/// one is refused by the name of its field.
pub(crate) fn positive(
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

fn mode(mode: i32) -> Result<Mode, Violation> {
    match pb::LockMode::try_from(mode) {
        Ok(pb::LockMode::Exclusive) => Ok(Mode::Exclusive),
        Ok(pb::LockMode::Shared) => Ok(Mode::Shared),
        Err(_) => Err(Violation::new(
            "mode",
            format!("{mode} is unknown; use LOCK_MODE_EXCLUSIVE (0) or LOCK_MODE_SHARED (1)"),
        )),
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
    fn an_unknown_mode_is_refused_by_its_name() {
        assert_eq!(mode(2).unwrap_err().field, "mode");
        assert_eq!(mode(1), Ok(Mode::Shared));
    }

    #[test]
    fn an_instance_name_has_at_most_256_bytes() {
        let mut metadata = MetadataMap::new();
        assert_eq!(instance(&metadata), Ok(""));
        metadata.insert(INSTANCE, "i".repeat(256).parse().unwrap());
        assert!(instance(&metadata).is_ok());
        metadata.insert(INSTANCE, "i".repeat(257).parse().unwrap());
        assert_eq!(instance(&metadata).unwrap_err().field, INSTANCE);
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
