//! Shared grants, and the end of a grant by its public ID.

use crate::{
    check::{
        Rule::{
            Answers, InOrder, OneHolder, OwnUnlock, Served, TokensRise, TriesGranted, WholeTtl,
        },
        story::{
            Story, ended, granted, granted_after, known_as, not_held, on, renewed, renews,
            repeats, shared, story, tries, tries_with, unknown, unlocks, waits,
        },
    },
    faults::Voids,
    history::{Call, Outcome},
    world::Backend,
};

/// The second is granted while the first is certainly held.
fn beside_each_other(first: Call, second: Call) -> Story {
    story().call(0, 1, first, granted("a", 1)).call(900, 929, second, granted("b", 2))
}

#[test]
fn a_writer_and_a_reader_at_the_same_time_are_found() {
    assert_eq!(beside_each_other(shared(tries()), tries()).rules(), [OneHolder]);
    assert_eq!(beside_each_other(tries(), shared(tries())).rules(), [OneHolder]);
    assert!(beside_each_other(shared(tries()), shared(tries())).rules().is_empty());
}

#[test]
fn a_writer_beside_the_reader_that_holds_longest_is_found() {
    let story_of = |unlocks_both| {
        let story = story()
            .call(0, 1, shared(tries()), granted("a", 1))
            .call(10, 11, shared(tries()), granted("b", 2))
            .call(500, 501, renews("a"), renewed())
            .call(600, 601, unlocks("b"), Outcome::Unlocked);
        let story = if unlocks_both {
            story.call(700, 701, unlocks("a"), Outcome::Unlocked)
        } else {
            story
        };
        story.call(1_200, 1_201, tries(), granted("c", 3)).rules()
    };
    assert_eq!(story_of(false), [OneHolder]);
    assert!(story_of(true).is_empty());
}

#[test]
fn equal_tokens_are_found_unless_both_grants_are_shared() {
    let story_of = |first: Call, second: Call, token| {
        story()
            .call(0, 1, first, granted("a", 7))
            .call(2, 3, unlocks("a"), Outcome::Unlocked)
            .call(4, 5, second, granted("b", token))
            .rules()
    };
    assert!(story_of(shared(tries()), shared(tries()), 7).is_empty());
    assert_eq!(story_of(shared(tries()), tries(), 7), [TokensRise]);
    assert_eq!(story_of(tries(), shared(tries()), 7), [TokensRise]);
    assert_eq!(story_of(shared(tries()), shared(tries()), 6), [TokensRise]);
}

/// The reader holds before the writer does, though their calls overlap.
#[test]
fn a_writer_that_a_fenced_register_would_refuse_after_a_read_is_found() {
    let story_of = |writes: i64| {
        story()
            .call(0, 10, shared(tries()), granted("a", 8))
            .call(5, 40, waits(1_000), granted("b", writes))
            .call(20, 30, unlocks("a"), Outcome::Unlocked)
            .rules()
    };
    assert_eq!(story_of(7), [TokensRise]);
    assert!(story_of(9).is_empty());
}

/// An unanswered call made it, and another one found it when there were further readers.
#[test]
fn a_reader_that_is_found_again_keeps_its_lower_token() {
    let story_of = |first| {
        story()
            .call(0, 5, shared(repeats("q")), first)
            .call(10, 11, shared(tries()), granted("b", 8))
            .call(20, 21, shared(repeats("q")), granted("a", 7))
            .rules()
    };
    assert!(story_of(unknown()).is_empty());
    assert_eq!(story_of(Outcome::Unavailable), [TokensRise]);
}

#[test]
fn a_reader_may_have_a_lower_token_than_one_that_held_before_it_if_their_calls_overlap() {
    let story = story().call(0, 10, shared(tries()), granted("a", 8)).call(
        5,
        40,
        shared(waits(1_000)),
        granted("b", 7),
    );
    assert!(story.rules().is_empty());
}

/// While a reader holds, one call waits, and much later another one is granted.
fn queued_and_granted(waiting: Call, later: Call) -> Story {
    story()
        .call(0, 1, shared(tries()), granted("a", 1))
        .call(100, 5_060, waiting, Outcome::WaitDeadline)
        .call(890, 900, unlocks("a"), Outcome::Unlocked)
        .call(901, 902, later, granted("b", 2))
}

#[test]
fn a_shared_grant_that_begins_while_a_writer_certainly_waits_is_found() {
    let rules = |later| queued_and_granted(waits(5_000), later).rules();
    assert_eq!(rules(shared(tries())), [InOrder]);
    assert_eq!(rules(shared(waits(1_000))), [InOrder]);
}

#[test]
fn readers_may_be_granted_in_any_order() {
    let story = queued_and_granted(shared(waits(5_000)), shared(tries()));
    assert!(story.rules().is_empty());
    let writer = queued_and_granted(shared(waits(5_000)), tries());
    assert_eq!(writer.rules(), [InOrder]);
}

/// A reader holds for as long as this, and another one waits from 100 ms on.
fn left_out(holds_ms: u64, outcome: Outcome) -> Story {
    let renewals = (1..holds_ms / 500).map(|number| number * 500);
    let held = story().call(0, 1, shared(tries()), granted("a", 1));
    renewals
        .fold(held, |story, at_ms| story.call(at_ms, at_ms + 1, renews("a"), renewed()))
        .call(100, holds_ms, shared(waits(holds_ms - 40)), outcome)
}

#[test]
fn a_reader_that_is_not_let_in_beside_another_one_is_found() {
    assert_eq!(left_out(6_500, Outcome::WaitDeadline).rules(), [Served]);
    assert_eq!(left_out(8_500, granted_after(8_380, "b", 2)).rules(), [Served]);
    assert!(left_out(5_400, granted_after(5_250, "b", 2)).rules().is_empty());
}

#[test]
fn a_reader_waits_behind_a_writer_until_that_one_gives_up() {
    let behind = |from_ms, until_ms| {
        left_out(9_500, Outcome::WaitDeadline)
            .call(from_ms, until_ms, waits(until_ms - from_ms + 60), Outcome::WaitDeadline)
            .rules()
    };
    assert!(behind(50, 6_000).is_empty());
    assert_eq!(behind(50, 3_000), [Served], "the writer had gone for 6.5 s");
    assert_eq!(behind(1_000, 9_000), [Served], "the writer came later");
}

#[test]
fn a_writer_that_waits_while_a_reader_holds_need_not_be_served() {
    let held = |holds_ms: u64| {
        let story = story().call(0, 1, shared(tries()), granted("a", 1));
        (1..holds_ms / 500)
            .fold(story, |story, n| story.call(n * 500, n * 500 + 1, renews("a"), renewed()))
            .call(100, 8_000, waits(7_960), Outcome::WaitDeadline)
            .rules()
    };
    assert!(held(8_000).is_empty());
    assert_eq!(held(1_000), [Served], "the reader's process died, and its TTL was over");
}

#[test]
fn a_shared_try_that_is_refused_though_only_readers_hold_is_found() {
    let refused = |call: Call| {
        let story = story()
            .call(0, 1, tries(), granted("z", 1))
            .call(2, 3, unlocks("z"), Outcome::Unlocked)
            .call(10, 11, shared(tries()), granted("a", 2));
        (1..16)
            .fold(story, |story, n| story.call(n * 500, n * 500 + 1, renews("a"), renewed()))
            .call(7_700, 7_701, call, Outcome::Locked)
            .rules()
    };
    assert_eq!(refused(shared(tries())), [TriesGranted]);
    assert!(refused(tries()).is_empty());
    assert!(refused(shared(tries_with("a"))).is_empty(), "the lock ID is that of a live grant");
}

#[test]
fn a_request_id_finds_its_live_grant_and_is_invalid_in_the_other_mode() {
    let again = |call, outcome| {
        story()
            .call(0, 1, shared(repeats("q")), granted("a", 1))
            .call(10, 11, call, outcome)
            .rules()
    };
    let invalid = || Outcome::Refused("INVALID_REQUEST".into());
    assert!(again(shared(repeats("q")), granted("a", 1)).is_empty());
    assert!(again(repeats("q"), invalid()).is_empty());
    assert_eq!(again(repeats("q"), Outcome::Locked), [Answers]);
    assert_eq!(again(repeats("q"), granted("a", 1)), [TokensRise]);
    assert_eq!(again(shared(repeats("q")), granted("b", 1)), [Answers]);
    assert_eq!(again(shared(repeats("q")), invalid()), [Answers]);
    assert_eq!(again(repeats("p"), invalid()), [Answers]);
}

#[test]
fn a_shared_wait_with_the_lock_id_of_a_live_shared_grant_may_be_refused() {
    let again = |mut call: Call, lock_id: &str| {
        if let Call::Try(asked) | Call::Lock { acquisition: asked, .. } = &mut call {
            asked.lock_id = Some(lock_id.into());
        }
        story()
            .call(0, 1, shared(tries()), granted("a", 1))
            .call(10, 11, call, Outcome::Refused("INVALID_REQUEST".into()))
            .rules()
    };
    assert!(again(shared(waits(1_000)), "a").is_empty());
    assert_eq!(again(shared(waits(1_000)), "b"), [Answers]);
    assert_eq!(again(shared(tries()), "a"), [Answers]);
    assert_eq!(again(waits(1_000), "a"), [Answers]);
}

/// Two readers, of which a call ends one or both.
fn ended_by(call: Call, outcome: Outcome) -> Story {
    story()
        .call(0, 1, shared(tries()), known_as("A", granted("a", 1)))
        .call(2, 3, shared(tries()), known_as("B", granted("b", 1)))
        .call(10, 11, call, outcome)
}

#[test]
fn the_end_of_one_grant_ends_no_other() {
    let then = |lock_id, outcome| {
        ended_by(Call::End { grant_id: "A".into() }, ended(&["A"]))
            .call(20, 21, renews(lock_id), outcome)
            .rules()
    };
    assert_eq!(then("b", not_held()), [WholeTtl]);
    assert!(then("b", renewed()).is_empty());
    assert!(then("a", not_held()).is_empty());
    assert!(!then("a", renewed()).is_empty(), "its end was answered");
}

#[test]
fn the_end_of_all_grants_ends_those_that_it_reports() {
    let then = |outcome, renewal| {
        ended_by(Call::EndAll, outcome).call(20, 21, renews("b"), renewal).rules()
    };
    assert!(then(ended(&["A", "B"]), not_held()).is_empty());
    assert!(!then(ended(&["A", "B"]), renewed()).is_empty());
    assert_eq!(then(ended(&["A"]), not_held()), [WholeTtl]);
    let more = Outcome::Ended { grant_ids: vec!["A".into()], more: true };
    assert!(then(more.clone(), not_held()).is_empty());
    assert!(then(more, renewed()).is_empty());
    assert!(then(unknown(), not_held()).is_empty());
}

#[test]
fn an_end_that_reports_another_grant_is_found() {
    let end = || Call::End { grant_id: "A".into() };
    assert_eq!(ended_by(end(), ended(&["B"])).rules(), [Answers]);
}

#[test]
fn a_public_id_that_two_grants_have_or_that_changes_is_found() {
    let two = |second: &str| {
        story()
            .call(0, 1, shared(repeats("q")), known_as("A", granted("a", 1)))
            .call(2, 3, shared(tries()), known_as(second, granted("b", 2)))
            .rules()
    };
    assert_eq!(two("A"), [Answers]);
    assert!(two("B").is_empty());
    let again = story().call(0, 1, shared(repeats("q")), known_as("A", granted("a", 1))).call(
        2,
        3,
        shared(repeats("q")),
        known_as("B", granted("a", 1)),
    );
    assert_eq!(again.rules(), [Answers]);
}

#[test]
fn a_later_reader_is_no_successor_that_ends_an_earlier_one() {
    let unlocked = |second| {
        on(Backend::Etcd)
            .call(0, 1, shared(tries()), granted("a", 1))
            .call(1_000, 1_001, second, granted("b", 2))
            .call(1_100, 1_101, unlocks("a"), Outcome::Unlocked)
            .rules()
    };
    assert!(unlocked(shared(tries())).is_empty());
    assert_eq!(unlocked(tries()), [OwnUnlock]);
}

#[test]
fn a_fault_that_voids_a_resource_voids_all_its_readers() {
    let story =
        beside_each_other(shared(tries()), tries()).fault(10, 20, Voids::GrantOf("r".into()));
    assert!(story.rules().is_empty());
}
