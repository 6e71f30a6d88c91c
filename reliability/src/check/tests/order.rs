//! The order of tokens, and of waits.

use crate::{
    check::{
        Rule::{InOrder, Served, TokensRise},
        story::{
            Story, granted, granted_after, on, repeats, story, tries, unknown, unlocks, waits,
        },
    },
    faults::Voids,
    history::Outcome,
    world::Backend,
};

fn one_after_the_other(first: i64, second: i64) -> Story {
    story()
        .call(0, 1, tries(), granted("a", first))
        .call(2, 3, unlocks("a"), Outcome::Unlocked)
        .call(4, 5, tries(), granted("b", second))
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    assert_eq!(one_after_the_other(7, 6).rules(), [TokensRise]);
    assert_eq!(one_after_the_other(7, 7).rules(), [TokensRise]);
    assert!(one_after_the_other(7, 8).rules().is_empty());
}

#[test]
fn tokens_of_calls_that_overlap_may_have_either_order() {
    let story = story()
        .call(0, 10, tries(), granted("a", 8))
        .call(1, 9, waits(1_000), granted("b", 7))
        .call(9, 10, unlocks("b"), Outcome::Unlocked);
    assert!(story.rules().is_empty());
}

#[test]
fn tokens_rise_in_the_order_of_holding_also_when_the_calls_overlap() {
    let story = story()
        .call(0, 10, tries(), granted("a", 8))
        .call(5, 40, waits(1_000), granted("b", 7))
        .call(20, 30, unlocks("a"), Outcome::Unlocked);
    assert_eq!(story.rules(), [TokensRise]);
}

#[test]
fn a_token_that_two_grants_share_is_found() {
    let story = story()
        .call(0, 10, tries(), granted("a", 7))
        .call(5, 40, waits(1_000), granted("b", 7))
        .call(20, 30, unlocks("a"), Outcome::Unlocked);
    assert_eq!(story.rules(), [TokensRise]);
}

#[test]
fn a_grant_that_is_given_to_a_call_without_its_request_id_is_found() {
    let twice = |second| {
        story().call(0, 1, repeats("q"), granted("a", 7)).call(2, 3, second, granted("a", 7))
    };
    assert_eq!(twice(tries()).rules(), [TokensRise]);
    assert_eq!(twice(repeats("p")).rules(), [TokensRise]);
    assert!(twice(repeats("q")).rules().is_empty());
}

#[test]
fn a_token_out_of_range_is_found() {
    for token in [0, -1, 1 << 53] {
        assert_eq!(story().call(0, 1, tries(), granted("a", token)).rules(), [TokensRise]);
    }
    assert!(story().call(0, 1, tries(), granted("a", (1 << 53) - 1)).rules().is_empty());
}

#[test]
fn only_a_fault_that_voids_tokens_excuses_a_lower_one() {
    let across = |voids| {
        story()
            .call(0, 1, tries(), granted("a", 7))
            .fault(2, 3, voids)
            .call(4, 5, tries(), granted("b", 6))
            .rules()
    };
    assert!(across(Voids::GrantsAndTokens).is_empty());
    assert_eq!(across(Voids::Grants), [TokensRise]);
}

/// While `a` holds, `b` waits, and `c` begins to wait much later. `c` is served first.
fn overtaken() -> Story {
    story()
        .call(0, 1, tries(), granted("a", 1))
        .call(890, 900, unlocks("a"), Outcome::Unlocked)
        .call(100, 990, waits(5_000), granted_after(885, "b", 3))
        .call(600, 905, waits(5_000), granted("c", 2))
        .call(910, 920, unlocks("c"), Outcome::Unlocked)
}

#[test]
fn a_wait_that_overtakes_an_older_one_is_found() {
    assert_eq!(overtaken().rules(), [InOrder]);
}

#[test]
fn a_wait_that_arrived_late_was_not_overtaken() {
    let story_of = |waited_ms| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(890, 900, unlocks("a"), Outcome::Unlocked)
            .call(100, 990, waits(5_000), granted_after(waited_ms, "b", 3))
            .call(600, 905, waits(5_000), granted("c", 2))
            .call(910, 920, unlocks("c"), Outcome::Unlocked)
            .rules()
    };
    assert_eq!(story_of(800), [InOrder]);
    assert!(story_of(700).is_empty(), "it may have arrived as late as 290 ms");
}

#[test]
fn waits_that_began_close_together_may_be_served_in_either_order() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(890, 900, unlocks("a"), Outcome::Unlocked)
        .call(100, 990, waits(5_000), granted_after(885, "b", 3))
        .call(400, 905, waits(5_000), granted("c", 2))
        .call(910, 920, unlocks("c"), Outcome::Unlocked);
    assert!(story.rules().is_empty());
}

#[test]
fn the_order_of_waits_is_unknown_during_a_fault() {
    assert!(overtaken().fault(300, 310, Voids::Nothing).rules().is_empty());
}

#[test]
fn a_try_that_overtakes_a_wait_is_found() {
    let story_of = |wait_ended, outcome: Outcome| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(100, wait_ended, waits(5_000), outcome)
            .call(890, 900, unlocks("a"), Outcome::Unlocked)
            .call(901, 902, tries(), granted("b", 2))
    };
    assert_eq!(story_of(5_060, Outcome::WaitDeadline).rules(), [InOrder]);
    assert!(story_of(910, unknown()).rules().is_empty(), "the wait was being cancelled");
    assert!(
        story_of(5_060, unknown()).rules().is_empty(),
        "the wait may never have been queued"
    );
}

#[test]
fn a_wait_that_is_not_served_although_the_resource_is_free_is_found() {
    let story_of = |unlocked_at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(unlocked_at, unlocked_at + 1, unlocks("a"), Outcome::Unlocked)
            .call(10, 6_460, waits(6_500), Outcome::WaitDeadline)
    };
    assert_eq!(story_of(500).rules(), [Served]);
    assert!(story_of(1_000).rules().is_empty(), "the resource was free for less than 5.5 s");
}

#[test]
fn a_wait_during_an_outage_may_go_unserved() {
    let story = story().call(10, 6_460, waits(6_500), Outcome::WaitDeadline).fault(
        3_000,
        3_001,
        Voids::Nothing,
    );
    assert!(story.rules().is_empty());
}

#[test]
fn a_grant_unknown_to_clients_may_delay_a_wait() {
    let story =
        on(Backend::Etcd).died(0, tries()).call(10, 6_460, waits(6_500), Outcome::WaitDeadline);
    assert!(story.rules().is_empty());
}

#[test]
fn a_wait_that_ends_long_before_its_deadline_is_found() {
    assert_eq!(story().call(0, 930, waits(1_000), Outcome::WaitDeadline).rules(), [Served]);
    assert!(story().call(0, 941, waits(1_000), Outcome::WaitDeadline).rules().is_empty());
}

#[test]
fn a_wait_that_fails_after_the_last_fault_is_found() {
    let failed = [Outcome::Unavailable, unknown(), Outcome::Refused("OVERLOADED".into())];
    for outcome in failed {
        let story = story().last(10, 20, waits(15_000), outcome.clone());
        assert_eq!(story.rules(), [Served], "{outcome:?}");
        let earlier = story_of_one(outcome);
        assert!(earlier.rules().is_empty(), "a fault was under way");
    }
    assert!(story().last(10, 20, waits(15_000), granted("a", 1)).rules().is_empty());
}

fn story_of_one(outcome: Outcome) -> Story {
    story().call(10, 20, waits(15_000), outcome).fault(0, 5_000, Voids::Nothing)
}

#[test]
fn a_suspended_leader_of_etcd_may_cost_waiters_their_places() {
    let rules_after = |fault: &str, ago_ms| {
        let begin = 10_000;
        on(Backend::Etcd)
            .fault_called(fault, begin - ago_ms - 100, begin - ago_ms, Voids::Nothing)
            .call(begin, begin + 1, tries(), granted("a", 1))
            .call(begin + 10, begin + 3_000, waits(4_000), granted_after(2_990, "c", 3))
            .call(begin + 1_500, begin + 2_000, waits(4_000), granted_after(500, "b", 2))
            .call(begin + 1_600, begin + 1_601, unlocks("a"), Outcome::Unlocked)
            .call(begin + 2_100, begin + 2_101, unlocks("b"), Outcome::Unlocked)
            .rules()
    };
    assert!(!rules_after("etcd-leader-suspended", 3_000).contains(&InOrder));
    assert!(rules_after("etcd-leader-suspended", 8_000).contains(&InOrder));
    assert!(rules_after("etcd-leader-killed", 3_000).contains(&InOrder));
}

/// On an overloaded machine, the check reported many waits as overtaken that had not
/// entered their queues yet.
#[test]
fn a_wait_of_a_slow_process_may_enter_its_queue_late() {
    let overtaken = |slowest_ms: u64| {
        on(Backend::Etcd)
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 3_000, waits(4_000), granted_after(2_990, "c", 3))
            .call(500, 500 + slowest_ms, tries(), Outcome::Locked)
            .call(900, 901, unlocks("a"), Outcome::Unlocked)
            .call(2_000, 2_010, tries(), granted("b", 2))
            .call(2_020, 2_030, unlocks("b"), Outcome::Unlocked)
    };
    assert_eq!(overtaken(10).rules(), [InOrder]);
    assert!(overtaken(400).rules().is_empty());
}
