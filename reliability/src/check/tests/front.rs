//! Locks that clients of Redis take through a front.

use super::super::{
    Rule::{NoEffect, NoRevival, OneHolder, OwnUnlock, TriesGranted},
    story::{
        Story, TTL_MS, ended, granted, known_as, not_held, on, renewed, renews, story, tries,
        unknown, unlocks, waits,
    },
};
use crate::{
    faults::Voids,
    history::{Acquisition, Call, FRONT_VIA, Granted, Outcome},
    world::Backend,
};

fn takes(value: &str) -> Call {
    let lock_id = Some(value.into());
    Call::FrontTry(Acquisition { ttl_ms: TTL_MS, lock_id, ..Acquisition::default() })
}

fn taken(value: &str) -> Outcome {
    let (lock_id, ttl_ns) = (value.to_owned(), TTL_MS * 1_000_000);
    Outcome::Granted(Granted { lock_id, ttl_ns, ..Granted::default() })
}

impl Story {
    /// A call through a front.
    fn front(self, from_ms: u64, to_ms: u64, call: Call, outcome: Outcome) -> Self {
        let mut story = self.call(from_ms, to_ms, call, outcome);
        if let Some(last) = story.operations.last_mut() {
            last.invocation.via = Some(FRONT_VIA);
        }
        story
    }
}

#[test]
fn its_holder_excludes_others_to_the_safe_deadline() {
    for backend in Backend::ALL {
        let granted_at = |at_ms| {
            on(backend)
                .front(0, 1, takes("a"), taken("a"))
                .call(at_ms, at_ms + 1, tries(), granted("b", 1))
                .rules()
        };
        assert_eq!(granted_at(900), [OneHolder]);
        assert!(granted_at(940).is_empty());
    }
}

#[test]
fn a_lock_of_the_component_excludes_it() {
    let story = story().call(0, 1, tries(), granted("b", 1));
    assert_eq!(story.front(900, 901, takes("a"), taken("a")).rules(), [OneHolder]);
}

#[test]
fn its_token_is_not_compared_because_it_is_unknown() {
    let story = story()
        .call(0, 1, tries(), granted("a", 5))
        .call(2, 3, unlocks("a"), Outcome::Unlocked)
        .front(10, 11, takes("b"), taken("b"))
        .front(12, 13, unlocks("b"), Outcome::Unlocked)
        .call(20, 21, tries(), granted("c", 6));
    assert!(story.rules().is_empty());
}

#[test]
fn an_unlock_or_a_renewal_after_another_grant_is_found() {
    let late = |call, outcome| {
        story()
            .front(0, 1, takes("a"), taken("a"))
            .call(1_100, 1_101, tries(), granted("b", 1))
            .front(1_200, 1_201, call, outcome)
            .rules()
    };
    assert_eq!(late(unlocks("a"), Outcome::Unlocked), [OwnUnlock]);
    assert_eq!(late(renews("a"), renewed()), [OneHolder, NoRevival]);
    assert!(late(unlocks("a"), not_held()).is_empty());
}

#[test]
fn a_value_that_was_refused_each_time_and_unlocks_is_found() {
    let unlocked_after = |refused| {
        story()
            .call(0, 1, tries(), granted("b", 1))
            .front(10, 11, takes("a"), refused)
            .front(20, 21, unlocks("a"), Outcome::Unlocked)
            .rules()
    };
    assert_eq!(unlocked_after(Outcome::Locked), [NoEffect]);
    assert!(unlocked_after(unknown()).is_empty());
}

#[test]
fn a_refusal_on_a_resource_that_nobody_holds_is_found() {
    let refused_at = |at_ms| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(2, 3, unlocks("a"), Outcome::Unlocked)
            .front(at_ms, at_ms + 1, takes("b"), Outcome::Locked)
            .rules()
    };
    assert_eq!(refused_at(10_000), [TriesGranted]);
    assert!(refused_at(3_000).is_empty());
}

#[test]
fn a_wait_that_was_granted_may_have_been_granted_after_it() {
    // It is unknown which of the two came first.
    let story = story()
        .call(0, 3_000, waits(5_000), granted("w", 7))
        .front(1_000, 1_001, takes("a"), taken("a"))
        .front(1_100, 1_101, unlocks("a"), Outcome::Unlocked);
    assert!(story.rules().is_empty());
}

#[test]
fn an_end_of_all_grants_may_have_ended_it() {
    let story = |end: Outcome| {
        story().front(0, 1, takes("a"), taken("a")).call(10, 11, Call::EndAll, end).call(
            20,
            21,
            tries(),
            known_as("y", granted("b", 1)),
        )
    };
    assert!(story(ended(&["x"])).rules().is_empty());
    assert!(story(ended(&[])).rules().contains(&OneHolder));
}

#[test]
fn a_renewal_that_was_sent_again_may_be_carried_out_late() {
    let story = |fault_from_ms| {
        story()
            .front(0, 1, takes("a"), taken("a"))
            .front(100, 400, renews("a"), renewed())
            .front(1_500, 1_501, renews("a"), renewed())
            .fault_called("front-replies-lost", fault_from_ms, 450, Voids::Nothing)
    };
    assert!(story(300).rules().is_empty());
    assert_eq!(story(420).rules(), [NoRevival]);
}
