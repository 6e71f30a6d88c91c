//! Reads the locks that a third-party store reports. Invalid facts are left out.

use std::time::Duration;

use leasehold_lock::{
    GrantId, Holder, Mode, ResourceId,
    inspect::{EndCause, EndedGrant, GrantView, LockView, Selection, WaiterView},
};
use leasehold_proto::locks as pb;
use prost_types::Timestamp;

use super::wire::from_wire;

/// A resource of a list or of a watch, with its selected grants; `None` if its name was
/// not asked for.
pub(super) fn listed(state: &pb::LockState, selection: &Selection) -> Option<LockView> {
    let is_wanted =
        state.namespace.is_empty() && state.resource_id.starts_with(&selection.name_prefix);
    let resource = ResourceId::new(&state.resource_id).ok().filter(|_| is_wanted)?;
    let reported = state.grants.len();
    let is_selected = |grant: &GrantView| selection.has_holder(grant.holder.as_ref());
    let grants: Vec<_> =
        state.grants.iter().filter_map(own_grant).filter(is_selected).collect();
    let left_out = reported - grants.len();
    let mut lock = LockView::new(resource, grants);
    if left_out == 0 && !lock.grants.is_empty() {
        lock.grants_total = count(state.grants_total).max(lock.grants_total);
    }
    Some(lock)
}

/// The one resource that was asked for, with at most `limit` grants; `None` if the answer is
/// about another one, which may belong to another app.
pub(super) fn asked_for(
    resource: &ResourceId,
    state: Option<&pb::LockState>,
    limit: usize,
) -> Option<LockView> {
    let Some(state) = state else { return Some(LockView::free(resource.clone())) };
    let is_it = state.namespace.is_empty() && state.resource_id == resource.as_str();
    let grants: Vec<_> = state.grants.iter().take(limit).map(grant).collect();
    let grants_total = count(state.grants_total).max(grants.len());
    is_it.then(|| LockView { resource: resource.clone(), grants, grants_total })
}

/// A waiter.
pub(super) fn waiter(waiter: &pb::WaiterInfo) -> WaiterView {
    WaiterView {
        position: count(waiter.position),
        mode: mode(waiter.mode()),
        since_unix_ms: waiter.since.and_then(unix_ms),
        holder: holder(&waiter.holder),
    }
}

/// Grants that have ended, as far as a watch reports them.
pub(super) fn ended(ended: &[pb::EndedGrant]) -> Vec<EndedGrant> {
    let read = |ended: &pb::EndedGrant| {
        let cause = match ended.cause() {
            pb::EndCause::Unknown => EndCause::Unknown,
            pb::EndCause::Released => EndCause::Released,
            pb::EndCause::Expired => EndCause::Expired,
            pb::EndCause::Forced => EndCause::Forced,
        };
        Some(EndedGrant { grant: own_grant(ended.grant.as_ref()?)?, cause })
    };
    ended.iter().filter_map(read).collect()
}

/// A grant of a list or a watch, without its remaining time; `None` if it is foreign. A grant
/// without a public ID counts as foreign: ending it could end a successor.
fn own_grant(reported: &pb::GrantInfo) -> Option<GrantView> {
    let view = GrantView { remaining: None, ..grant(reported) };
    (view.id.is_some() && !view.foreign).then_some(view)
}

/// A count; a negative one is 0.
pub(super) fn count(count: i32) -> usize {
    usize::try_from(count).unwrap_or_default()
}

/// A grant.
pub(super) fn grant(grant: &pb::GrantInfo) -> GrantView {
    GrantView {
        id: grant.grant_id.parse::<GrantId>().ok(),
        holder: holder(&grant.holder),
        mode: mode(grant.mode()),
        remaining: from_wire(grant.remaining),
        since_unix_ms: grant.since.and_then(unix_ms),
        foreign: grant.foreign,
    }
}

/// A label that is too long is dropped.
fn holder(label: &str) -> Option<Holder> {
    Holder::new(label).ok().flatten()
}

fn mode(mode: pb::LockMode) -> Mode {
    match mode {
        pb::LockMode::Exclusive => Mode::Exclusive,
        pb::LockMode::Shared => Mode::Shared,
    }
}

/// `None` if before 1970 or invalid.
fn unix_ms(time: Timestamp) -> Option<u64> {
    let seconds = u64::try_from(time.seconds).ok()?;
    let nanos = u64::try_from(time.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    // The largest valid timestamp is in the year 9999.
    let is_valid = seconds < 253_402_300_800;
    let millis = Duration::from_nanos(nanos).subsec_millis();
    is_valid.then(|| seconds * 1000 + u64::from(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(id: &str, holder: &str) -> pb::GrantInfo {
        pb::GrantInfo { grant_id: id.into(), holder: holder.into(), ..Default::default() }
    }

    fn state(name: &str, grants: Vec<pb::GrantInfo>) -> pb::LockState {
        let grants_total = i32::try_from(grants.len()).unwrap();
        pb::LockState { resource_id: name.into(), grants, grants_total, ..Default::default() }
    }

    fn selection(name_prefix: &str, holder_prefix: &str) -> Selection {
        Selection { name_prefix: name_prefix.into(), holder_prefix: holder_prefix.into() }
    }

    #[test]
    fn what_was_not_asked_for_is_left_out() {
        let id = "0".repeat(32);
        let wanted = selection("a", "h");
        assert_eq!(listed(&state("b", vec![reported(&id, "h")]), &wanted), None);
        assert_eq!(listed(&state("a\n", vec![reported(&id, "h")]), &wanted), None);
        let elsewhere = pb::LockState {
            namespace: vec!["n".into()],
            ..state("a", vec![reported(&id, "h")])
        };
        assert_eq!(listed(&elsewhere, &wanted), None);
        let grants = vec![reported(&id, "h1"), reported(&id, "other"), reported(&id, "")];
        let lock = listed(&state("ab", grants), &wanted).unwrap();
        assert_eq!((lock.grants.len(), lock.grants_total), (1, 1));
    }

    #[test]
    fn an_answer_about_another_resource_is_not_believed() {
        let resource: ResourceId = "r".parse().unwrap();
        assert_eq!(
            asked_for(&resource, Some(&state("other", vec![reported("", "h")])), 10),
            None
        );
        let elsewhere = pb::LockState { namespace: vec!["n".into()], ..state("r", vec![]) };
        assert_eq!(asked_for(&resource, Some(&elsewhere), 10), None);
        assert_eq!(asked_for(&resource, None, 10), Some(LockView::free(resource.clone())));
    }

    #[test]
    fn a_grant_without_an_id_and_a_foreign_one_are_not_listed() {
        let id = "0".repeat(32);
        let foreign = pb::GrantInfo { foreign: true, ..reported(&id, "") };
        for grants in [vec![reported("", "")], vec![reported("bad", "")], vec![foreign]] {
            let lock = listed(&state("a", grants), &selection("", "")).unwrap();
            assert_eq!((lock.grants.len(), lock.grants_total), (0, 0));
        }
    }

    #[test]
    fn a_grant_without_an_id_and_a_foreign_one_are_not_reported_as_ended() {
        let id = "0".repeat(32);
        let foreign = pb::GrantInfo { foreign: true, ..reported(&id, "") };
        let gone = |grant| pb::EndedGrant { grant: Some(grant), ..Default::default() };
        assert_eq!(ended(&[gone(reported("", "")), gone(foreign), Default::default()]), []);
        assert_eq!(ended(&[gone(reported(&id, ""))]).len(), 1);
    }

    #[test]
    fn the_remaining_time_is_not_listed() {
        let remaining = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let timed = pb::GrantInfo { remaining, ..reported(&"0".repeat(32), "") };
        let lock = listed(&state("a", vec![timed]), &selection("", "")).unwrap();
        assert_eq!(lock.grants[0].remaining, None);
    }

    #[test]
    fn numbers_and_times_that_cannot_be_are_not_believed() {
        let lying = pb::LockState { grants_total: -7, ..state("r", vec![reported("", "")]) };
        let resource: ResourceId = "r".parse().unwrap();
        assert_eq!(asked_for(&resource, Some(&lying), 10).unwrap().grants_total, 1);
        let lock =
            asked_for(&resource, Some(&state("r", vec![reported("", ""); 11])), 10).unwrap();
        assert_eq!((lock.grants.len(), lock.grants_total), (10, 11));
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0)] {
            assert_eq!(unix_ms(Timestamp { seconds, nanos }), None);
        }
        assert_eq!(unix_ms(Timestamp { seconds: 1, nanos: 500_000_000 }), Some(1500));
    }
}
