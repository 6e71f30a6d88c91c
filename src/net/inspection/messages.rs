//! The messages of what is told.

use leasehold_lock::{
    Holder, LockError, Mode, ResourceId,
    inspect::{EndCause, EndedGrant, GrantView, LockView, WaiterView, WatchEvent},
};
use leasehold_proto::locks as pb;
use tonic::Status;

use crate::{
    status::ErrorDescription,
    wire::{duration, timestamp},
};

/// A resource as its caller names it.
#[derive(Debug, Default)]
pub struct Named {
    /// The ID, without a namespace.
    pub resource_id: String,
    /// The namespace, from its root.
    pub namespace: Vec<String>,
}

/// The name on a component's socket: the store's.
pub fn raw(resource: &ResourceId) -> Named {
    Named { resource_id: resource.as_str().to_owned(), namespace: Vec::new() }
}

/// Writes who holds a resource that is named so.
pub fn state(lock: &LockView, name: Named) -> pb::LockState {
    let Named { resource_id, namespace } = name;
    pb::LockState {
        resource_id,
        namespace,
        grants: lock.grants.iter().map(grant).collect(),
        grants_total: count(lock.grants_total),
    }
}

/// Writes a number of something.
pub fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes somebody who waits.
pub fn waiter(waiter: &WaiterView) -> pb::WaiterInfo {
    pb::WaiterInfo {
        position: count(waiter.position),
        holder: text(waiter.holder.as_ref()),
        mode: mode(waiter.mode).into(),
        since: waiter.since_unix_ms.map(timestamp),
    }
}

/// Writes what a watcher is told of resources that are named by `name`.
pub fn event(event: &WatchEvent, name: impl Fn(&ResourceId) -> Named) -> pb::LockEvent {
    match event {
        WatchEvent::Changed { lock, ended } => pb::LockEvent {
            state: Some(state(lock, name(&lock.resource))),
            ended: ended.iter().map(ended_grant).collect(),
            ..Default::default()
        },
        WatchEvent::Restarted => pb::LockEvent { restarted: true, ..Default::default() },
        WatchEvent::Synced => pb::LockEvent { synced: true, ..Default::default() },
    }
}

fn ended_grant(EndedGrant { grant: ended, cause }: &EndedGrant) -> pb::EndedGrant {
    let cause = match cause {
        EndCause::Unknown => pb::EndCause::Unknown,
        EndCause::Released => pb::EndCause::Released,
        EndCause::Expired => pb::EndCause::Expired,
        EndCause::Forced => pb::EndCause::Forced,
    };
    pb::EndedGrant { grant: Some(grant(ended)), cause: cause.into() }
}

fn grant(grant: &GrantView) -> pb::GrantInfo {
    pb::GrantInfo {
        grant_id: grant.id.map(|id| id.to_string()).unwrap_or_default(),
        holder: text(grant.holder.as_ref()),
        mode: mode(grant.mode).into(),
        remaining: grant.remaining.map(duration),
        since: grant.since_unix_ms.map(timestamp),
        foreign: grant.foreign,
    }
}

fn text(holder: Option<&Holder>) -> String {
    holder.map(|holder| holder.as_str().to_owned()).unwrap_or_default()
}

fn mode(mode: Mode) -> pb::LockMode {
    match mode {
        Mode::Exclusive => pb::LockMode::Exclusive,
        Mode::Shared => pb::LockMode::Shared,
    }
}

/// An error as a stream ends with it.
pub fn status(error: LockError) -> Status {
    ErrorDescription::from(error).into()
}
