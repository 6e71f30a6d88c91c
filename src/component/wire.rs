//! Converts the protocol's messages into the domain's requests, and grants into messages.

use leasehold_lock::{
    AcquireRequest, Granted, Holder, LockId, RenewRequest, RequestId, ResourceId,
    UnlockRequest, Violation,
};
use leasehold_net::wire::{duration, grant_id, mode, positive, token};
use leasehold_proto::components as pb;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The metadata key that names the instance. Without it a call is for the unnamed one.
pub(crate) const INSTANCE: &str = "x-component-instance";

/// The longest instance name in bytes; Kubernetes allows 253.
const INSTANCE_BYTES_MAX: usize = 256;

/// Reads a request to lock that arrived at `arrived`.
pub(crate) fn acquire(
    request: &pb::LockRequest,
    arrived: Instant,
    deadline: Option<Instant>,
) -> Result<AcquireRequest, Violation> {
    Ok(AcquireRequest {
        attempt: None,
        ttl: positive("ttl", request.ttl)?,
        mode: mode(request.mode)?,
        resource: ResourceId::new(&request.resource_id)?,
        lock_id: LockId::optional(&request.lock_id)?,
        request_id: RequestId::new(&request.request_id)?,
        holder: Holder::new(&request.holder)?,
        arrived,
        deadline,
        answer_by: None,
        wait_end: None,
        published: false,
        streamed: false,
    })
}

/// Reads a renewal.
pub(crate) fn renew(request: &pb::RenewLockRequest) -> Result<RenewRequest, Violation> {
    Ok(RenewRequest {
        ttl: positive("ttl", request.ttl)?,
        resource: ResourceId::new(&request.resource_id)?,
        lock_id: LockId::new(&request.lock_id)?,
    })
}

/// Reads an unlock. A forced one ignores the lock ID.
pub(crate) fn unlock(request: &pb::UnlockRequest) -> Result<UnlockRequest, Violation> {
    let resource = ResourceId::new(&request.resource_id)?;
    Ok(if request.force {
        UnlockRequest::force(resource)
    } else {
        UnlockRequest::owner(resource, LockId::new(&request.lock_id)?)
    })
}

/// Writes a grant.
pub(super) fn granted(granted: &Granted) -> pb::LockResponse {
    pb::LockResponse {
        lock_id: granted.lock_id.as_str().to_owned(),
        fencing_token: token(granted.token),
        ttl: Some(duration(granted.ttl)),
        waited: Some(duration(granted.waited)),
        grant_id: grant_id(granted.id),
    }
}

/// The instance that a call is for.
pub(crate) fn instance(metadata: &MetadataMap) -> Result<&str, Violation> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_bad_field_of_a_lock_request_is_named() {
        type Spoil = fn(&mut pb::LockRequest);
        let cases: [(&str, Spoil); 4] = [
            ("resource_id", |asked| asked.resource_id.clear()),
            ("lock_id", |asked| asked.lock_id = "x".repeat(257)),
            ("request_id", |asked| asked.request_id = "x".repeat(257)),
            ("holder", |asked| asked.holder = "x".repeat(257)),
        ];
        for (field, spoil) in cases {
            let mut asked = pb::LockRequest { resource_id: "r".into(), ..Default::default() };
            assert!(acquire(&asked, Instant::now(), None).is_ok());
            spoil(&mut asked);
            assert_eq!(acquire(&asked, Instant::now(), None).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_renewal_and_an_unlock_need_a_lock_id() {
        let renewal = pb::RenewLockRequest { resource_id: "r".into(), ..Default::default() };
        assert_eq!(renew(&renewal).unwrap_err().field, "lock_id");
        let asked = pb::UnlockRequest { resource_id: "r".into(), ..Default::default() };
        assert_eq!(unlock(&asked).unwrap_err().field, "lock_id");
    }

    #[test]
    fn a_forced_unlock_ignores_the_lock_id() {
        let (resource_id, lock_id) = ("r".into(), "x".repeat(999));
        let asked =
            pb::UnlockRequest { resource_id, lock_id, force: true, ..Default::default() };
        assert!(unlock(&asked).is_ok());
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
}
