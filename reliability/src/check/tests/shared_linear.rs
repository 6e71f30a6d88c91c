//! Linearizability of shared grants.

use super::is_linearizable;
use crate::{
    check::story::{
        Story, ended, granted, known_as, not_held, on, renewed, renews, shared, story, tries,
        tries_with, unknown, unlocks,
    },
    faults::Voids,
    history::{Call, Outcome},
    world::Backend,
};

fn two_readers() -> Story {
    story().call(0, 1, shared(tries()), known_as("A", granted("a", 1))).call(
        2,
        3,
        shared(tries()),
        known_as("B", granted("b", 1)),
    )
}

#[test]
fn readers_hold_beside_each_other_and_keep_writers_out() {
    let refused = |call| is_linearizable(&two_readers().call(10, 11, call, Outcome::Locked));
    assert!(refused(tries()));
    assert!(!refused(shared(tries())));
}

#[test]
fn a_writer_is_granted_only_when_the_last_reader_has_gone() {
    let story_of = |unlocks_both| {
        let story = two_readers().call(10, 11, unlocks("a"), Outcome::Unlocked);
        let story = if unlocks_both {
            story.call(12, 13, unlocks("b"), Outcome::Unlocked)
        } else {
            story
        };
        is_linearizable(&story.call(20, 21, tries(), granted("c", 2)))
    };
    assert!(story_of(true));
    assert!(!story_of(false));
}

#[test]
fn many_readers_may_expire_before_a_writer_comes() {
    let readers = (0..40).fold(story(), |story, number| {
        let lock_id = format!("reader-{number}");
        story.call(number, number + 1, shared(tries()), granted(&lock_id, 1))
    });
    let renewed_late = (0..39).fold(readers, |story, number| {
        let lock_id = format!("reader-{number}");
        story.call(500 + number, 501 + number, renews(&lock_id), renewed())
    });
    assert!(is_linearizable(&renewed_late.call(1_600, 1_601, tries(), granted("w", 2))));
}

#[test]
fn a_writer_that_came_before_a_reader_expired_is_found() {
    let story_of = |at_ms| {
        let story = two_readers().call(500, 501, renews("b"), renewed());
        is_linearizable(&story.call(at_ms, at_ms + 1, tries(), granted("c", 2)))
    };
    assert!(!story_of(1_300));
    assert!(story_of(1_450));
}

/// The second grant joined the first one in the model, which the unlock then left.
#[test]
fn a_lock_id_is_free_again_after_its_grant_expired() {
    let story = story()
        .call(0, 1, shared(tries_with("a")), granted("a", 1))
        .call(1_450, 1_451, shared(tries_with("a")), granted("a", 2))
        .call(1_460, 1_461, unlocks("a"), Outcome::Unlocked)
        .call(1_470, 1_471, renews("b"), Outcome::NotHeld { held: Some(false) });
    assert!(is_linearizable(&story));
}

#[test]
fn the_end_of_one_reader_leaves_the_other() {
    let then = |lock_id| {
        let story =
            two_readers().call(10, 11, Call::End { grant_id: "A".into() }, ended(&["A"]));
        is_linearizable(&story.call(20, 21, renews(lock_id), not_held()))
    };
    assert!(then("a"));
    assert!(!then("b"));
}

#[test]
fn an_end_that_denies_a_live_grant_is_found() {
    let then = |at_ms| {
        let end = Call::End { grant_id: "A".into() };
        is_linearizable(&two_readers().call(at_ms, at_ms + 1, end, not_held()))
    };
    assert!(!then(10));
    assert!(then(1_450), "its TTL was over");
}

#[test]
fn a_force_ends_all_readers_at_once() {
    let then = |outcome, renewal: Outcome| {
        let story = two_readers()
            .call(10, 11, Call::Force, outcome)
            .call(20, 21, renews("a"), not_held())
            .call(30, 31, renews("b"), renewal);
        is_linearizable(&story)
    };
    assert!(then(Outcome::Unlocked, not_held()));
    assert!(!then(Outcome::Unlocked, renewed()));
    assert!(then(unknown(), not_held()));
    assert!(then(unknown(), renewed()), "it may have been broken off in between");
}

#[test]
fn a_reader_whose_call_was_not_answered_keeps_writers_out() {
    let refused = |second| {
        let story = story().call(0, 1, shared(tries()), unknown());
        is_linearizable(&story.call(10, 11, second, Outcome::Locked))
    };
    assert!(refused(tries()));
    assert!(!refused(shared(tries())));
}

#[test]
fn a_fault_of_etcd_may_have_ended_one_of_the_readers() {
    let then = |backend| {
        let story = on(backend)
            .call(0, 1, shared(tries()), granted("a", 1))
            .call(2, 3, shared(tries()), granted("b", 1))
            .fault(10, 20, Voids::GrantOf("r".into()))
            .call(30, 31, renews("a"), not_held())
            .call(40, 41, renews("b"), renewed());
        is_linearizable(&story)
    };
    assert!(then(Backend::Etcd));
    assert!(!then(Backend::Redis), "one key stands for all of them");
}
