//! CheckLocks: for how long the app may still believe in its locks, over gRPC and HTTP.

use std::time::Duration;

use leasehold_proto::locks as proto;
use serde_json::{Value, json};

use super::{
    Locks,
    json::{Fields, go_duration},
    wire,
};
use crate::{
    held::Known,
    lock::{LockId, Violation},
    net::wire::duration,
    sidecar::{api::error::ApiError, name::ResourceName},
};

/// How many locks one call may ask about.
const LOCKS_MAX: usize = 1000;
/// The largest request: so many locks, each with names of usual lengths.
pub(crate) const BYTES_MAX: usize = 256 * 1024;

/// Names a grant.
struct LockRef {
    store_name: String,
    resource: ResourceName,
    lock_id: LockId,
}

/// Answers a request over gRPC.
pub(super) fn grpc(
    locks: &Locks,
    request: proto::CheckLocksRequest,
) -> Result<proto::CheckLocksResponse, Violation> {
    let read = |lock: proto::LockRef| {
        reference(&lock.store_name, &lock.resource_id, lock.namespace, &lock.lock_id)
    };
    let answers = each(locks, request.locks, read, |checked| {
        let (valid_for, reason, cause) = parts(checked);
        proto::LockCheck {
            valid_for: valid_for.map(duration),
            reason: reason.to_owned(),
            cause: cause.to_owned(),
        }
    });
    Ok(proto::CheckLocksResponse { locks: answers? })
}

/// Answers a request over HTTP.
pub(super) fn http(locks: &Locks, request: &Fields) -> Result<Value, Violation> {
    let asked = request.objects("locks")?;
    let asked = asked.ok_or_else(|| {
        Violation::new(
            "locks",
            "is missing; give [{\"storeName\", \"resourceID\", \"lockID\"}]",
        )
    })?;
    let read = |lock: Fields| {
        let lock = lock.only(&["storeName", "resourceID", "lockID", "namespace"])?;
        let namespace = lock.texts("namespace")?;
        let (key, lock_id) = (lock.text("resourceID")?, lock.text("lockID")?);
        reference(&lock.text("storeName")?, &key, namespace, &lock_id)
    };
    let answers = each(locks, asked, read, |checked| match parts(checked) {
        (Some(valid_for), ..) => json!({ "validFor": go_duration(valid_for) }),
        (None, reason, "") => json!({ "reason": reason }),
        (None, reason, cause) => json!({ "reason": reason, "cause": cause }),
    });
    Ok(json!({ "locks": answers? }))
}

/// Checks each lock, once all of them are known to be valid names.
fn each<Asked, Answer>(
    locks: &Locks,
    asked: Vec<Asked>,
    read: impl Fn(Asked) -> Result<LockRef, Violation>,
    answer: impl Fn(Option<Known>) -> Answer,
) -> Result<Vec<Answer>, Violation> {
    if asked.len() > LOCKS_MAX {
        let problem =
            format!("has {} entries; at most {LOCKS_MAX} are allowed in a call", asked.len());
        return Err(Violation::new("locks", problem));
    }
    let read = asked.into_iter().enumerate().map(|(at, asked)| {
        read(asked).map_err(|Violation { field, problem }| {
            Violation::new(format!("locks[{at}].{field}"), problem)
        })
    });
    let read = read.collect::<Result<Vec<_>, _>>()?;
    Ok(read.iter().map(|lock| answer(check(locks, lock))).collect())
}

/// What is known of a lock; `None` if there is no such store.
fn check(locks: &Locks, lock: &LockRef) -> Option<Known> {
    match locks.target(&lock.store_name, &lock.resource) {
        Ok(target) => Some(locks.engine().known(&target, &lock.lock_id)),
        Err(ApiError::NoStores | ApiError::StoreNotFound { .. }) => None,
        // The store cannot have locked such a name.
        Err(_) => Some(Known::NotHeld),
    }
}

fn reference(
    store_name: &str,
    key: &str,
    namespace: Vec<String>,
    lock_id: &str,
) -> Result<LockRef, Violation> {
    if store_name.is_empty() {
        return Err(Violation::new("store_name", "is missing; give the name of a lock store"));
    }
    let resource = wire::resource(key, namespace)?;
    Ok(LockRef { store_name: store_name.to_owned(), resource, lock_id: LockId::new(lock_id)? })
}

/// How long it is valid, or the reason and the cause why it is not.
fn parts(checked: Option<Known>) -> (Option<Duration>, &'static str, &'static str) {
    match checked {
        Some(Known::Held(valid_for)) => (Some(valid_for), "", ""),
        Some(Known::Unlocking) => (None, "UNLOCKING", ""),
        Some(Known::Lost(cause)) => (None, "LOCK_LOST", cause.as_str()),
        Some(Known::NotHeld) => (None, "NOT_HELD_HERE", ""),
        None => (None, "STORE_NOT_FOUND", ""),
    }
}
