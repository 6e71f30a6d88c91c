//! Answers, and what failed.

use crate::{
    check::{
        Rule::{Answers, NoEffect, OwnUnlock, Prompt},
        story::{granted, renewed, renews, story, tries, tries_with, unknown, unlocks},
    },
    faults::Voids,
    history::{Call, Outcome},
};

#[test]
fn an_unlock_by_a_stranger_is_found() {
    let wrong = Call::UnlockWrong { lock_id: "z".into() };
    let story =
        story().call(0, 1, tries(), granted("a", 1)).call(2, 3, wrong, Outcome::Unlocked);
    assert!(story.rules().contains(&OwnUnlock));
}

#[test]
fn a_lock_id_whose_acquisition_failed_and_works_is_found() {
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
fn an_answer_that_is_late_is_found() {
    let late = || story().call(0, 8_001, tries(), unknown());
    assert_eq!(late().rules(), [Prompt]);
    assert_eq!(
        late().fault(10, 20, Voids::Nothing).rules(),
        [Prompt],
        "a network is no excuse"
    );
    assert!(story().call(0, 7_999, tries(), unknown()).rules().is_empty());
}
