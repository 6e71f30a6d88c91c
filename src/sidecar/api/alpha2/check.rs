//! CheckLocks: how long the app's locks are still valid, over gRPC and HTTP.

use std::time::Duration;

use leasehold_held::Known;
use leasehold_lock::{LockId, Violation};
use leasehold_net::wire::duration;
use leasehold_proto::locks as proto;
use leasehold_util::duration::go_duration;
use serde_json::{Value, json};

use super::{Locks, json::Fields, wire};
use crate::{api::error::ApiError, name::ResourceName};

/// How many locks one call may ask about.
const LOCKS_MAX: usize = 1000;
/// The largest request: `LOCKS_MAX` locks with names of usual lengths.
pub(crate) const BYTES_MAX: usize = 256 * 1024;

/// Answers a request, once all of its locks are known to have valid names.
pub(super) fn answer(
    locks: &Locks,
    request: proto::CheckLocksRequest,
) -> Result<proto::CheckLocksResponse, Violation> {
    if request.locks.len() > LOCKS_MAX {
        let problem = format!(
            "has {} entries; at most {LOCKS_MAX} are allowed in a call",
            request.locks.len()
        );
        return Err(Violation::new("locks", problem));
    }
    let named = each(request.locks, |lock| {
        if lock.store_name.is_empty() {
            return Err(Violation::new(
                "store_name",
                "is missing; give the name of a lock store",
            ));
        }
        let resource = wire::resource(&lock.resource_id, lock.namespace)?;
        Ok((lock.store_name, resource, LockId::new(&lock.lock_id)?))
    })?;
    let checked = named.iter().map(|(store_name, resource, lock_id)| {
        let (valid_for, reason, cause) = parts(check(locks, store_name, resource, lock_id));
        proto::LockCheck {
            valid_for: valid_for.map(duration),
            reason: reason.to_owned(),
            cause: cause.to_owned(),
        }
    });
    Ok(proto::CheckLocksResponse { locks: checked.collect() })
}

/// Reads a request in JSON.
pub(super) fn read(mut request: Fields) -> Result<proto::CheckLocksRequest, Violation> {
    let asked = request.objects("locks")?;
    request.end()?;
    let asked = asked.ok_or_else(|| {
        Violation::new(
            "locks",
            "is missing; give [{\"storeName\", \"resourceID\", \"lockID\"}]",
        )
    })?;
    let locks = each(asked, |mut lock| {
        let read = proto::LockRef {
            store_name: lock.text("storeName")?,
            resource_id: lock.text("resourceID")?,
            lock_id: lock.text("lockID")?,
            namespace: lock.texts("namespace")?,
        };
        lock.end()?;
        Ok(read)
    })?;
    Ok(proto::CheckLocksRequest { locks })
}

/// Writes an answer in JSON.
pub(super) fn json(answer: &proto::CheckLocksResponse) -> Value {
    let locks = answer.locks.iter().map(|lock| match lock.valid_for {
        Some(valid_for) => {
            json!({ "validFor": go_duration(valid_for.try_into().unwrap_or_default()) })
        }
        None if lock.cause.is_empty() => json!({ "reason": lock.reason }),
        None => json!({ "reason": lock.reason, "cause": lock.cause }),
    });
    json!({ "locks": locks.collect::<Vec<_>>() })
}

/// Reads each entry. A violation names the entry.
fn each<T, Read>(
    asked: Vec<T>,
    read: impl Fn(T) -> Result<Read, Violation>,
) -> Result<Vec<Read>, Violation> {
    let read = asked.into_iter().enumerate().map(|(at, asked)| {
        read(asked).map_err(|Violation { field, problem }| {
            Violation::new(format!("locks[{at}].{field}"), problem)
        })
    });
    read.collect()
}

/// The state of a lock; `None` if there is no such store.
fn check(
    locks: &Locks,
    store_name: &str,
    resource: &ResourceName,
    lock_id: &LockId,
) -> Option<Known> {
    match locks.resource(store_name, resource) {
        Ok(resource) => Some(locks.engine().known(&resource, lock_id)),
        Err(ApiError::NoStores | ApiError::StoreNotFound { .. }) => None,
        // The store cannot have locked such a name.
        Err(_) => Some(Known::NotHeld),
    }
}

/// How long the lock is valid, or the reason and the cause why it is not.
fn parts(checked: Option<Known>) -> (Option<Duration>, &'static str, &'static str) {
    match checked {
        Some(Known::Held(valid_for)) => (Some(valid_for), "", ""),
        Some(Known::Unlocking) => (None, "UNLOCKING", ""),
        Some(Known::Lost(cause)) => (None, "LOCK_LOST", cause.as_str()),
        Some(Known::NotHeld) => (None, "NOT_HELD_HERE", ""),
        None => (None, "STORE_NOT_FOUND", ""),
    }
}
