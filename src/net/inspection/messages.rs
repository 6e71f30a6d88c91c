//! The messages of inspection.

use leasehold_lock::{
    Holder, Mode,
    inspect::{EndCause, EndedGrant, GrantView, LockView, WaiterView, WatchEvent},
};
use leasehold_proto::locks as pb;

use super::names::{Named, Names};
use crate::wire::{duration, grant_id, timestamp};

/// Writes who holds a resource, under the caller's name of it.
pub(super) fn state(lock: &LockView, name: Named) -> pb::LockState {
    let Named { resource_id, namespace } = name;
    pb::LockState {
        resource_id,
        namespace,
        grants: lock.grants.iter().map(grant).collect(),
        grants_total: count(lock.grants_total),
    }
}

/// Writes a count, limited to the range of the wire.
pub(super) fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes a waiter.
pub(super) fn waiter(waiter: &WaiterView) -> pb::WaiterInfo {
    pb::WaiterInfo {
        position: count(waiter.position),
        holder: text(waiter.holder.as_ref()),
        mode: mode(waiter.mode).into(),
        since: waiter.since_unix_ms.map(timestamp),
    }
}

/// Writes an event of a watch.
pub(super) fn event(event: &WatchEvent, names: &impl Names) -> pb::LockEvent {
    match event {
        WatchEvent::Changed { lock, ended } => pb::LockEvent {
            state: Some(state(lock, names.read(&lock.resource))),
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
        grant_id: grant_id(grant.id),
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
