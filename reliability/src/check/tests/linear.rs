//! Linearizability, in histories where no other rule finds a violation.

use super::is_linearizable;
use crate::{
    check::story::{
        granted, not_held, on, renewed, renews, repeats, story, tries, tries_with, unknown,
        unlocks, waits,
    },
    faults::Voids,
    history::{Call, Outcome},
    world::Backend,
};

#[test]
fn a_refused_try_is_found_if_the_resource_was_certainly_free() {
    assert!(!is_linearizable(&story().call(0, 1, tries(), Outcome::Locked)));
    let unlocked = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(2, 3, unlocks("a"), Outcome::Unlocked)
        .call(4, 5, tries(), Outcome::Locked);
    assert!(!is_linearizable(&unlocked));
}

#[test]
fn a_try_may_be_refused_while_another_call_waits() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(2, 3, unlocks("a"), Outcome::Unlocked)
        .call(1, 9, waits(1_000), unknown())
        .call(4, 5, tries(), Outcome::Locked);
    assert!(is_linearizable(&story));
}

#[test]
fn a_try_may_be_refused_because_of_a_grant_unknown_to_clients() {
    for outcome in [unknown(), Outcome::Unlocked] {
        let is_unknown = outcome == unknown();
        let call = if is_unknown { tries() } else { unlocks("x") };
        let story = story().call(0, 1, call, outcome).call(2, 3, tries(), Outcome::Locked);
        assert_eq!(is_linearizable(&story), is_unknown);
    }
    assert!(is_linearizable(&story().died(0, tries()).call(2, 3, tries(), Outcome::Locked)));
}

#[test]
fn a_grant_may_end_at_its_ttl_or_later() {
    let refused_at = |at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(at, at + 1, tries(), Outcome::Locked)
            .call(at + 2, at + 3, renews("a"), not_held())
    };
    assert!(is_linearizable(&refused_at(940)));
    assert!(!is_linearizable(&refused_at(500)), "nothing ended the grant before its TTL");
}

#[test]
fn a_forced_unlock_that_found_no_holder_of_a_held_lock_is_found() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(10, 11, Call::Force, not_held())
        .call(20, 21, renews("a"), renewed());
    assert!(!is_linearizable(&story));
}

#[test]
fn an_answer_about_another_holder_must_be_true() {
    let told = |held| {
        let outcome = Outcome::NotHeld { held: Some(held) };
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 11, Call::UnlockWrong { lock_id: "z".into() }, outcome)
            .call(20, 21, renews("a"), renewed())
    };
    assert!(is_linearizable(&told(true)));
    assert!(!is_linearizable(&told(false)));
}

#[test]
fn a_lock_id_whose_acquisition_is_unknown_may_work() {
    let story = story()
        .call(0, 1, tries_with("a"), unknown())
        .call(2, 3, renews("a"), renewed())
        .call(4, 5, unlocks("a"), Outcome::Unlocked)
        .call(6, 7, tries(), granted("b", 2));
    assert!(is_linearizable(&story));
}

#[test]
fn a_request_id_finds_the_grant_of_an_unknown_acquisition() {
    let story = story()
        .call(0, 1, repeats("q"), unknown())
        .call(2, 3, tries(), Outcome::Locked)
        .call(4, 5, repeats("q"), granted("a", 1))
        .call(6, 7, tries(), Outcome::Locked);
    assert!(is_linearizable(&story));
}

#[test]
fn after_lost_data_any_state_is_possible() {
    let story = |voids| {
        story().call(0, 1, tries(), granted("a", 1)).fault(10, 20, voids).call(
            30,
            31,
            renews("a"),
            not_held(),
        )
    };
    assert!(is_linearizable(&story(Voids::Grants)));
    assert!(is_linearizable(&story(Voids::GrantOf("r".into()))));
    assert!(!is_linearizable(&story(Voids::GrantOf("other".into()))));
    assert!(!is_linearizable(&story(Voids::Nothing)));
}

#[test]
fn two_calls_that_ended_the_same_grant_are_found_unless_a_reply_was_lost() {
    let both = |backend, fault, at| {
        on(backend)
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 20, unlocks("a"), Outcome::Unlocked)
            .call(11, 21, Call::Force, Outcome::Unlocked)
            .fault_called(fault, at, at + 10, Voids::Nothing)
    };
    for fault in ["network-replies-lost", "etcd-leader-killed", "leasehold-suspended"] {
        assert!(is_linearizable(&both(Backend::Etcd, fault, 5)), "{fault}");
        assert!(!is_linearizable(&both(Backend::Etcd, fault, 30)), "{fault} came after both");
        assert!(
            !is_linearizable(&both(Backend::Redis, fault, 5)),
            "the answer would be unknown"
        );
        assert!(!is_linearizable(&both(Backend::Memory, fault, 5)), "memory loses no reply");
    }
    for fault in ["client-suspended", "etcd-compacted"] {
        assert!(!is_linearizable(&both(Backend::Etcd, fault, 5)), "{fault} loses no reply");
    }
}

#[test]
fn a_replacement_of_a_grant_holds_until_it_is_removed() {
    let story = |name, late| {
        let told = Outcome::NotHeld { held: Some(true) };
        story()
            .call(0, 1, tries(), granted("a", 1))
            .fault_called(name, 10, 300, Voids::GrantOf("r".into()))
            .call(100, 101, renews("a"), told)
            .call(late, late + 1, tries(), Outcome::Locked)
            .call(400, 401, tries(), granted("b", 2))
            .call(402, 403, renews("a"), not_held())
    };
    assert!(is_linearizable(&story("redis-holder-replaced", 200)));
    assert!(is_linearizable(&story("redis-holder-of-wrong-type", 200)));
    assert!(!is_linearizable(&story("redis-holder-deleted", 200)));
}

#[test]
fn a_replacement_of_a_grant_is_not_unlocked_by_the_holder() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .fault_called("redis-holder-replaced", 10, 300, Voids::GrantOf("r".into()))
        .call(100, 101, renews("a"), Outcome::NotHeld { held: Some(true) })
        .call(200, 201, unlocks("a"), Outcome::Unlocked);
    assert!(!is_linearizable(&story));
}

#[test]
fn a_flushed_grant_is_not_renewed_after_it_was_not_found() {
    let story = |name| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .fault_called(name, 10, 20, Voids::Grants)
            .call(30, 31, renews("a"), not_held())
            .call(40, 41, renews("a"), renewed())
    };
    assert!(!is_linearizable(&story("redis-flushed")));
    assert!(is_linearizable(&story("etcd-restored-bumped")), "the restore may bring it back");
}

#[test]
fn a_hand_over_may_be_ended_by_force_before_its_waiter_confirms() {
    let story_of = |backend, force_at| {
        on(backend)
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 90, waits(1_000), granted("b", 3))
            .call(20, 22, unlocks("a"), Outcome::Unlocked)
            .call(force_at, force_at + 1, Call::Force, Outcome::Unlocked)
            .call(100, 101, renews("b"), renewed())
    };
    assert!(is_linearizable(&story_of(Backend::Redis, 30)));
    assert!(!is_linearizable(&story_of(Backend::Memory, 30)), "memory grants in one step");
    assert!(!is_linearizable(&story_of(Backend::Redis, 95)), "the grant was already confirmed");
}

#[test]
fn a_wait_during_a_fault_may_have_given_a_grant_back() {
    let story_of = |outcome: Outcome, fault_at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .fault(fault_at, fault_at + 10, Voids::Nothing)
            .call(10, 500, waits(540), outcome)
            .call(20, 22, unlocks("a"), Outcome::Unlocked)
            .call(100, 101, unlocks("a"), Outcome::NotHeld { held: Some(true) })
    };
    for outcome in [Outcome::WaitDeadline, Outcome::Unavailable] {
        assert!(is_linearizable(&story_of(outcome.clone(), 30)));
        assert!(!is_linearizable(&story_of(outcome, 600)), "the fault came after the wait");
    }
}

#[test]
fn a_forced_unlock_whose_reply_was_lost_may_succeed_without_ending_a_grant() {
    let story_of = |backend, force_from, fault_at| {
        on(backend)
            .call(0, 1, tries(), granted("a", 1))
            .fault_called("network-replies-lost", fault_at, fault_at + 10, Voids::Nothing)
            .call(10, 30, unlocks("a"), Outcome::Unlocked)
            .call(force_from, 500, Call::Force, Outcome::Unlocked)
    };
    assert!(is_linearizable(&story_of(Backend::Etcd, 20, 100)));
    assert!(!is_linearizable(&story_of(Backend::Etcd, 20, 600)), "no reply was lost");
    assert!(!is_linearizable(&story_of(Backend::Etcd, 40, 100)), "the grant had ended before");
    assert!(
        !is_linearizable(&story_of(Backend::Redis, 20, 100)),
        "the answer would be unknown"
    );
    assert!(!is_linearizable(&story_of(Backend::Memory, 20, 100)), "memory loses no reply");
}

#[test]
fn a_refused_try_may_have_held_the_lock_if_its_first_reply_was_lost() {
    let story = |backend, fault_until| {
        on(backend)
            .fault_called("network-replies-lost", 1, fault_until, Voids::Nothing)
            .call(5, 900, tries(), Outcome::Locked)
            .call(100, 101, tries(), Outcome::Locked)
            .call(800, 801, tries(), granted("b", 2))
    };
    assert!(is_linearizable(&story(Backend::Redis, 850)), "its grant may have expired");
    assert!(is_linearizable(&story(Backend::Etcd, 850)), "it may have been ended by force");
    assert!(!is_linearizable(&story(Backend::Redis, 3)), "no reply was lost");
    assert!(!is_linearizable(&story(Backend::Memory, 850)), "memory loses no reply");
}

#[test]
fn a_hand_over_may_be_ended_by_force_although_its_waiter_is_never_served() {
    let story_of = |backend, waited_until| {
        on(backend)
            .call(0, 1, tries(), granted("a", 1))
            .call(10, waited_until, waits(940), Outcome::WaitDeadline)
            .call(30, 45, unlocks("a"), Outcome::Unlocked)
            .call(31, 46, Call::Force, Outcome::Unlocked)
    };
    assert!(is_linearizable(&story_of(Backend::Redis, 900)));
    assert!(!is_linearizable(&story_of(Backend::Memory, 900)), "memory grants in one step");
    assert!(!is_linearizable(&story_of(Backend::Redis, 20)), "the wait had ended");
}

#[test]
fn a_wait_may_be_granted_at_its_deadline_and_give_the_grant_back() {
    let story_of = |seen_at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 900, waits(940), Outcome::WaitDeadline)
            .call(20, 22, unlocks("a"), Outcome::Unlocked)
            .call(seen_at, seen_at + 1, unlocks("a"), Outcome::NotHeld { held: Some(true) })
    };
    assert!(is_linearizable(&story_of(880)));
    assert!(!is_linearizable(&story_of(100)), "its deadline was far away");
}

/// The earlier grant had expired. Only the grant that was given back shows this.
#[test]
fn a_grant_that_is_given_back_may_have_followed_one_that_expired() {
    let story_of = |seen_at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 2_900, waits(2_940), Outcome::WaitDeadline)
            .call(seen_at, seen_at + 1, renews("a"), Outcome::NotHeld { held: Some(true) })
    };
    assert!(is_linearizable(&story_of(2_880)));
    assert!(!is_linearizable(&story_of(2_000)), "its deadline was far away");
}
