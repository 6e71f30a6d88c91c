//! What a failover of Redis may lose, and what it may not.

use crate::{
    check::{
        Rule::{self, NoRevival, OneHolder, OwnUnlock, Served, TokensRise, WholeTtl},
        Write,
        story::{
            Story, granted, granted_after, not_held, on, renewed, renews, shared, tries,
            unknown, unlocks, waits,
        },
    },
    faults::Voids,
    history::Outcome,
    world::Backend,
};

/// What was answered before this moment the promoted replica had received.
const KEPT_MS: u64 = 500;
const PROMOTED_MS: u64 = 1_000;
/// By when every process has left the former master.
const LEFT_MS: u64 = 4_000;

fn failed_over() -> Story {
    let lost = Voids::AnsweredSince(KEPT_MS * 1_000_000);
    let story = on(Backend::RedisSentinel);
    story.fault_called("sentinel-promoted", PROMOTED_MS, LEFT_MS, lost)
}

/// The rules that are violated, and what explains further violations.
fn found(story: &Story) -> (Vec<Rule>, Vec<Option<Write>>) {
    (story.rules(), story.verdict().excused.into_keys().collect())
}

fn excused_by(write: Write) -> (Vec<Rule>, Vec<Option<Write>>) {
    (Vec::new(), vec![Some(write)])
}

fn violates(rule: Rule) -> (Vec<Rule>, Vec<Option<Write>>) {
    (vec![rule], Vec::new())
}

/// Another grant while one that was answered at `answered_ms` is certainly held.
fn granted_twice(answered_ms: u64, again_ms: u64) -> Story {
    failed_over().call(answered_ms - 1, answered_ms, tries(), granted("a", 1)).call(
        again_ms - 1,
        again_ms,
        tries(),
        granted("b", 2),
    )
}

#[test]
fn a_grant_that_was_answered_after_the_last_sample_that_the_replica_had_may_be_lost() {
    assert_eq!(found(&granted_twice(KEPT_MS, 1_200)), excused_by(Write::Grant));
    assert_eq!(found(&granted_twice(KEPT_MS - 1, 1_200)), violates(OneHolder));
}

#[test]
fn nothing_is_lost_before_the_promotion() {
    assert_eq!(found(&granted_twice(KEPT_MS, PROMOTED_MS - 10)), violates(OneHolder));
}

#[test]
fn what_the_former_master_grants_is_lost_until_it_must_be_left() {
    assert_eq!(found(&granted_twice(LEFT_MS, LEFT_MS + 100)), excused_by(Write::Grant));
    assert_eq!(found(&granted_twice(LEFT_MS + 10, LEFT_MS + 100)), violates(OneHolder));
}

#[test]
fn a_process_that_stands_still_or_is_cut_off_leaves_the_former_master_later() {
    for name in ["leasehold-suspended", "network-partitioned"] {
        let story = granted_twice(LEFT_MS + 2_000, LEFT_MS + 2_100);
        let story = story.fault_called(name, LEFT_MS - 10, LEFT_MS + 10, Voids::Nothing);
        assert_eq!(found(&story), excused_by(Write::Grant), "{name}");
    }
    let story = granted_twice(LEFT_MS + 2_000, LEFT_MS + 2_100);
    let story = story.fault_called("client-suspended", LEFT_MS, LEFT_MS + 10, Voids::Nothing);
    assert_eq!(found(&story), violates(OneHolder));
}

#[test]
fn a_slow_machine_leaves_the_former_master_later() {
    let slow = |ms: u64| {
        let story = granted_twice(LEFT_MS + 1_000, LEFT_MS + 1_100);
        found(&story.call(LEFT_MS + 500, LEFT_MS + 500 + ms, renews("c"), not_held()))
    };
    assert_eq!(slow(240), violates(OneHolder));
    assert_eq!(slow(260), excused_by(Write::Grant));
}

#[test]
fn tokens_rise_though_a_grant_was_lost() {
    let story = failed_over().call(600, 601, tries(), granted("a", 2)).call(
        1_700,
        1_701,
        tries(),
        granted("b", 1),
    );
    assert_eq!(found(&story), violates(TokensRise));
}

/// The former master knew the first grant, and so did the promoted replica.
#[test]
fn nobody_grants_twice_what_the_replica_had_received() {
    for again_ms in [PROMOTED_MS - 10, PROMOTED_MS + 10, KEPT_MS + 920] {
        assert_eq!(found(&granted_twice(KEPT_MS - 1, again_ms)), violates(OneHolder));
    }
}

#[test]
fn a_lost_grant_must_not_come_back() {
    let story = granted_twice(LEFT_MS - 10, LEFT_MS + 20);
    assert_eq!(found(&story), excused_by(Write::Grant));
    let story = story.call(LEFT_MS + 30, LEFT_MS + 31, renews("a"), renewed());
    assert!(story.rules().contains(&NoRevival), "{:?}", story.rules());
}

#[test]
fn a_grant_may_end_without_a_renewal_that_was_lost() {
    let renewed_at = |ms: u64| {
        let story = failed_over()
            .call(0, 1, tries(), granted("a", 1))
            .call(ms - 1, ms, renews("a"), renewed())
            .call(1_100, 1_101, renews("a"), not_held());
        found(&story)
    };
    assert_eq!(renewed_at(KEPT_MS), excused_by(Write::Renewal));
    assert_eq!(renewed_at(KEPT_MS - 1), violates(WholeTtl));
}

#[test]
fn a_grant_may_go_on_if_its_unlock_was_lost() {
    let unlocked_at = |ms: u64| {
        let story = failed_over()
            .call(0, 1, tries(), granted("a", 1))
            .call(ms - 1, ms, unlocks("a"), Outcome::Unlocked)
            .call(1_020, 1_030, unlocks("a"), Outcome::Unlocked);
        found(&story)
    };
    assert_eq!(unlocked_at(KEPT_MS), excused_by(Write::Unlock));
    assert_eq!(unlocked_at(KEPT_MS - 1), violates(OwnUnlock));
}

/// Its place is still there, and readers wait behind it for others whose unlocks were lost.
#[test]
fn the_end_of_a_wait_may_be_lost() {
    let rules = |story: Story| {
        let cancelled = story.call(300, 600, waits(5_000), unknown());
        let granted = granted_after(18_800, "b", 2);
        cancelled.call(1_100, 20_000, shared(waits(20_000)), granted).rules()
    };
    assert_eq!(rules(failed_over()), []);
    assert_eq!(rules(on(Backend::RedisSentinel)), [Served], "there was no failover");
}
