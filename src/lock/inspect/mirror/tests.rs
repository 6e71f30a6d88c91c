use super::{state::FREED_MAX, *};
use crate::{
    GrantId, Mode, ResourceId,
    inspect::{EndCause, GrantView, WatchEvent},
};

pub(super) fn grant(id: u128) -> GrantView {
    GrantView {
        id: Some(GrantId::from_u128(id)),
        holder: None,
        mode: Mode::Exclusive,
        remaining: None,
        since_unix_ms: None,
        foreign: false,
    }
}

pub(super) fn held(name: &str, id: u128) -> LockView {
    LockView {
        resource: ResourceId::new(name).unwrap(),
        grants: vec![grant(id)],
        grants_total: 1,
    }
}

pub(super) fn free(name: &str) -> LockView {
    LockView::free(ResourceId::new(name).unwrap())
}

pub(super) fn changed(lock: LockView) -> WatchEvent {
    WatchEvent::Changed { lock, ended: Vec::new() }
}

fn beginning(mirror: &Mirror) -> Position {
    mirror.beginning(SubscriptionNumber::Scope(1))
}

pub(super) fn all(mirror: &Mirror, position: &mut Position) -> Next {
    mirror.next(position, 1000, &Scope::prefix(""))
}

#[test]
fn a_watcher_gets_the_held_locks_and_then_is_complete() {
    let mirror = Mirror::default();
    mirror.set(held("a", 1), Vec::new());
    mirror.set(held("b", 2), Vec::new());
    mirror.set(free("b"), Vec::new());
    let mut position = beginning(&mirror);
    let events = all(&mirror, &mut position);
    assert_eq!(events, Next::Changes(vec![changed(held("a", 1))]));
    assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
    mirror.complete_up_to(u64::MAX);
    assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: true });
}

#[test]
fn a_slow_watcher_gets_the_last_of_several_changes() {
    let mirror = Mirror::default();
    let mut position = beginning(&mirror);
    mirror.set(held("a", 1), Vec::new());
    mirror.set(held("b", 2), Vec::new());
    mirror.set(held("a", 3), Vec::new());
    let events = all(&mirror, &mut position);
    assert_eq!(events, Next::Changes(vec![changed(held("b", 2)), changed(held("a", 3))]));
}

#[test]
fn a_watcher_gets_an_end_with_its_cause() {
    let mirror = Mirror::default();
    mirror.set(held("a", 1), Vec::new());
    let mut position = beginning(&mirror);
    all(&mirror, &mut position);
    let ended = vec![EndedGrant { grant: grant(1), cause: EndCause::Released }];
    mirror.set(free("a"), ended.clone());
    let events = all(&mirror, &mut position);
    assert_eq!(events, Next::Changes(vec![WatchEvent::Changed { lock: free("a"), ended }]));
}

/// Once only the ends of the last change were reported.
#[test]
fn a_slow_watcher_gets_each_end_once() {
    let mirror = Mirror::default();
    mirror.set(held("a", 1), Vec::new());
    let mut position = beginning(&mirror);
    all(&mirror, &mut position);
    let ended = |id| vec![EndedGrant { grant: grant(id), cause: EndCause::Expired }];
    let events = |position: &mut Position| match all(&mirror, position) {
        Next::Changes(mut changes) => match changes.remove(0) {
            WatchEvent::Changed { ended, .. } => ended,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    mirror.set(held("a", 2), ended(1));
    mirror.set(held("a", 3), ended(2));
    assert_eq!(events(&mut position), [ended(1), ended(2)].concat());
    mirror.set(held("a", 4), ended(3));
    assert_eq!(events(&mut position), ended(3));
}

#[test]
fn of_many_ends_that_left_a_resource_free_a_few_are_reported() {
    let mirror = Mirror::default();
    let mut position = beginning(&mirror);
    let ended = |id| EndedGrant { grant: grant(id), cause: EndCause::Released };
    mirror.set(held("a", 0), (1..=50).map(ended).collect());
    let Next::Changes(events) = all(&mirror, &mut position) else { panic!() };
    assert!(matches!(&events[..], [WatchEvent::Changed { ended, .. }] if ended.len() == 50));
    mirror.set(free("a"), (1..=50).map(ended).collect());
    let Next::Changes(events) = all(&mirror, &mut position) else { panic!() };
    assert!(matches!(&events[..], [WatchEvent::Changed { ended, .. }] if ended.len() == 10));
}

#[test]
fn the_same_state_again_is_no_change() {
    let mirror = Mirror::default();
    mirror.set(held("a", 1), Vec::new());
    let mut position = beginning(&mirror);
    all(&mirror, &mut position);
    mirror.set(held("a", 1), Vec::new());
    mirror.set(free("b"), Vec::new());
    assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
}

#[test]
fn a_restart_is_reported_and_all_states_follow() {
    let mirror = Mirror::default();
    mirror.set(held("a", 1), Vec::new());
    mirror.complete_up_to(u64::MAX);
    let mut position = beginning(&mirror);
    all(&mirror, &mut position);
    mirror.restart();
    mirror.set(held("a", 1), Vec::new());
    assert_eq!(all(&mirror, &mut position), Next::Restarted);
    let events = all(&mirror, &mut position);
    assert_eq!(events, Next::Changes(vec![changed(held("a", 1))]));
    assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
}

#[test]
fn a_watcher_that_is_behind_forgotten_resources_begins_again() {
    let mirror = Mirror::default();
    mirror.set(held("kept", 1), Vec::new());
    let (mut slow, mut fast) = (beginning(&mirror), beginning(&mirror));
    all(&mirror, &mut slow);
    for at in 0..=FREED_MAX {
        let name = format!("r{at}");
        mirror.set(held(&name, 1), Vec::new());
        mirror.set(free(&name), Vec::new());
        all(&mirror, &mut fast);
    }
    assert!(mirror.state.lock().len() < FREED_MAX);
    assert_eq!(all(&mirror, &mut slow), Next::Restarted);
    let events = all(&mirror, &mut slow);
    assert_eq!(events, Next::Changes(vec![changed(held("kept", 1))]));
    assert_eq!(all(&mirror, &mut fast), Next::CaughtUp { is_complete: false });
}

#[test]
fn a_watcher_of_some_resources_gets_no_others() {
    let mirror = Mirror::default();
    let mut position = beginning(&mirror);
    mirror.set(held("a", 1), Vec::new());
    mirror.set(held("b", 2), Vec::new());
    let events = mirror.next(&mut position, 1000, &Scope::prefix("b"));
    assert_eq!(events, Next::Changes(vec![changed(held("b", 2))]));
}

#[test]
fn a_single_resource_is_found_without_a_look_at_the_others() {
    let mirror = Mirror::default();
    let mut position = beginning(&mirror);
    for name in ["a", "b", "c"] {
        mirror.set(held(name, 1), Vec::new());
    }
    let only = Scope::resource(ResourceId::new("b").unwrap());
    let events = mirror.next(&mut position, 1, &only);
    assert_eq!(events, Next::Changes(vec![changed(held("b", 1))]));
    let nothing = mirror.next(&mut position, 1, &only);
    assert_eq!(nothing, Next::CaughtUp { is_complete: false });
    mirror.set(free("b"), Vec::new());
    let events = mirror.next(&mut position, 1, &only);
    assert_eq!(events, Next::Changes(vec![changed(free("b"))]));
}
