//! The answers that the contract allows, and failed calls that had an effect.

use crate::{
    check::{
        Rule::{Answers, NoEffect, OwnUnlock, Prompt},
        story::{granted, renewed, renews, story, tries, tries_with, unknown, unlocks},
    },
    faults::Voids,
    history::{Call, Outcome},
};

#[test]
fn an_unlock_with_a_lock_id_that_was_never_granted_is_found() {
    let wrong = Call::UnlockWrong { lock_id: "z".into() };
    let story =
        story().call(0, 1, tries(), granted("a", 1)).call(2, 3, wrong, Outcome::Unlocked);
    assert!(story.rules().contains(&OwnUnlock));
}

#[test]
fn a_lock_id_that_works_although_its_acquisition_failed_is_found() {
    let story_of = |outcome, call, works| {
        story().call(0, 1, tries_with("a"), outcome).call(2, 3, call, works).rules()
    };
    for failed in [Outcome::Unavailable, Outcome::Locked] {
        assert_eq!(story_of(failed.clone(), unlocks("a"), Outcome::Unlocked), [NoEffect]);
        assert_eq!(story_of(failed, renews("a"), renewed()), [NoEffect]);
    }
    assert!(story_of(unknown(), unlocks("a"), Outcome::Unlocked).is_empty());
}

#[test]
fn an_answer_that_is_not_in_the_contract_is_found() {
    let answered = |call, outcome| story().call(0, 1, call, outcome).rules();
    assert_eq!(answered(tries(), Outcome::Unknown("INTERNAL".into())), [Answers]);
    assert_eq!(answered(tries(), Outcome::Refused("INVALID_REQUEST".into())), [Answers]);
    assert_eq!(answered(tries(), Outcome::WaitDeadline), [Answers]);
    assert_eq!(answered(renews("a"), Outcome::Locked), [Answers]);
    assert!(answered(tries(), Outcome::Refused("OVERLOADED".into())).is_empty());
    assert!(answered(tries(), unknown()).is_empty());
}

#[test]
fn a_late_answer_is_found() {
    let late = || story().call(0, 8_001, tries(), unknown());
    assert_eq!(late().rules(), [Prompt]);
    assert_eq!(
        late().fault(10, 20, Voids::Nothing).rules(),
        [Prompt],
        "a network fault is no excuse"
    );
    assert!(story().call(0, 7_999, tries(), unknown()).rules().is_empty());
}

#[test]
fn a_grant_with_another_lock_id_than_requested_is_found() {
    assert_eq!(story().call(0, 1, tries_with("x"), granted("y", 1)).rules(), [Answers]);
    assert!(story().call(0, 1, tries_with("x"), granted("x", 1)).rules().is_empty());
}

#[test]
fn a_lock_id_that_leasehold_chose_twice_is_found() {
    let story_of = |call: fn() -> Call| {
        story()
            .call(0, 1, call(), granted("a", 1))
            .call(2, 3, unlocks("a"), Outcome::Unlocked)
            .call(4, 5, call(), granted("a", 2))
    };
    assert_eq!(story_of(tries).rules(), [Answers]);
    assert!(story_of(|| tries_with("a")).rules().is_empty(), "a client may repeat its own");
}

#[test]
fn an_error_code_without_a_reason_is_found_unless_it_is_from_the_transport() {
    let answered =
        |why: &str| story().call(0, 1, tries(), Outcome::Unknown(why.into())).rules();
    for why in ["Unimplemented: no", "InvalidArgument: x", "INTERNAL"] {
        assert_eq!(answered(why), [Answers], "{why}");
    }
    for why in ["Unavailable: gone", "Cancelled: ", "Unknown: h2", "no answer", "cancelled"] {
        assert!(answered(why).is_empty(), "{why}");
    }
}

#[test]
fn a_name_is_invalid_while_its_key_has_another_type() {
    let story_of = |name, at| {
        story()
            .fault_called(name, 10, 20, Voids::GrantOf("r".into()))
            .call(at, at + 5, tries(), Outcome::Refused("INVALID_REQUEST".into()))
            .rules()
    };
    assert!(story_of("redis-holder-of-wrong-type", 12).is_empty());
    assert_eq!(story_of("redis-holder-of-wrong-type", 22), [Answers]);
    assert_eq!(story_of("redis-holder-replaced", 12), [Answers]);
}

#[test]
fn a_renewal_that_is_given_up_without_a_fault_is_found() {
    let given_up_at = |at| {
        story()
            .fault(0, 10, Voids::Nothing)
            .call(20, 21, tries(), granted("a", 1))
            .call(at, at + 5_000, renews("a"), Outcome::Unavailable)
            .rules()
    };
    assert!(given_up_at(4_009).is_empty(), "the fault may still be felt");
    assert_eq!(given_up_at(4_020), [Prompt]);
}
