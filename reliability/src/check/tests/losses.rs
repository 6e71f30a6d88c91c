//! What a failover of Redis may lose, and what it may not.

use std::ops::RangeInclusive;

use crate::{
    check::{
        Rule::{
            self, NoRevival, OneHolder, OwnUnlock, RenewedSurvives, Served, TokensRise,
            WholeTtl,
        },
        Write,
        story::{
            Story, granted, granted_after, not_held, on, renewed, renews, shared, tries,
            unknown, unlocks, waits,
        },
    },
    faults::Voids,
    history::{Call, Granted, Outcome},
    slots::slot_of,
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
    story.fault_called("replica-promoted", PROMOTED_MS, LEFT_MS, lost)
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

/// For much longer than a story.
fn long(lock_id: &str, token: i64) -> Outcome {
    let (lock_id, ttl_ns) = (lock_id.to_owned(), 60_000_000_000);
    Outcome::Granted(Granted { lock_id, token, ttl_ns, ..Granted::default() })
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
fn a_grant_answered_after_the_replicas_last_sample_may_be_lost() {
    assert_eq!(found(&granted_twice(KEPT_MS, 1_200)), excused_by(Write::Grant));
    assert_eq!(found(&granted_twice(KEPT_MS - 1, 1_200)), violates(OneHolder));
}

#[test]
fn nothing_is_lost_before_the_promotion() {
    assert_eq!(found(&granted_twice(KEPT_MS, PROMOTED_MS - 10)), violates(OneHolder));
    let unlocked_twice = failed_over()
        .call(0, 1, tries(), granted("a", 1))
        .call(499, 500, unlocks("a"), Outcome::Unlocked)
        .call(699, 700, unlocks("a"), Outcome::Unlocked);
    assert_eq!(found(&unlocked_twice), violates(OwnUnlock));
    let renewed_after_its_successor = failed_over()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 101, unlocks("a"), unknown())
        .call(499, 500, tries(), granted("b", 2))
        .call(699, 700, renews("a"), renewed());
    assert_eq!(found(&renewed_after_its_successor), violates(NoRevival));
}

#[test]
fn what_will_be_lost_is_there_until_then() {
    let lost = Voids::AnsweredSince(KEPT_MS * 1_000_000);
    let promoted = |at_ms: u64| {
        let story = on(Backend::RedisSentinel);
        story.fault_called("replica-promoted", at_ms, at_ms + 3_000, lost.clone())
    };
    let renewed = |at_ms: u64| {
        let story = promoted(at_ms)
            .call(0, 1, tries(), granted("a", 1))
            .call(599, 600, renews("a"), renewed())
            .call(890, 1_700, renews("a"), not_held());
        found(&story)
    };
    assert_eq!(renewed(1_690), excused_by(Write::Renewal));
    assert_eq!(renewed(1_710), violates(RenewedSurvives));
    let unlocked = |at_ms: u64| {
        let story = promoted(at_ms)
            .call(0, 1, tries(), long("a", 1))
            .call(599, 600, unlocks("a"), Outcome::Unlocked)
            .call(700, 14_600, waits(14_000), Outcome::WaitDeadline);
        found(&story)
    };
    assert_eq!(unlocked(1_000), excused_by(Write::Unlock));
    assert_eq!(unlocked(14_700), violates(Served));
}

#[test]
fn what_the_former_master_grants_is_lost_until_it_must_be_left() {
    assert_eq!(found(&granted_twice(LEFT_MS, LEFT_MS + 100)), excused_by(Write::Grant));
    assert_eq!(found(&granted_twice(LEFT_MS + 10, LEFT_MS + 100)), violates(OneHolder));
}

/// The new master granted it: the former one had been left for long when that was asked for.
#[test]
fn a_wait_counts_from_its_grant() {
    let story = failed_over()
        .call(300, 10_000, waits(30_000), granted_after(9_690, "a", 1))
        .call(10_099, 10_100, tries(), granted("b", 2));
    assert_eq!(found(&story), violates(OneHolder));
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
fn a_process_leaves_the_former_master_though_another_fault_goes_on() {
    let story = granted_twice(LEFT_MS + 4_000, LEFT_MS + 4_100);
    let (from_ms, to_ms) = (LEFT_MS - 10, LEFT_MS + 10);
    let mut story = story.fault_called("leasehold-suspended", from_ms, to_ms, Voids::Nothing);
    story.faults[1].until_ns = (LEFT_MS + 20_000) * 1_000_000;
    assert_eq!(found(&story), violates(OneHolder));
}

#[test]
fn a_slow_machine_leaves_the_former_master_later() {
    let slow = |later_ms: u64, ms: u64| {
        let story = granted_twice(LEFT_MS + later_ms, LEFT_MS + later_ms + 100);
        found(&story.call(LEFT_MS + 500, LEFT_MS + 500 + ms, renews("c"), not_held()))
    };
    assert_eq!(slow(1_000, 240), violates(OneHolder));
    assert_eq!(slow(1_000, 260), excused_by(Write::Grant));
    assert_eq!(slow(3_010, 5_000), violates(OneHolder), "faults slow calls down, too");
}

/// A renewal whose first try shortened the TTL, so that the second found nothing.
#[test]
fn only_faults_of_redis_servers_lose_replies() {
    let during = |name: &str| {
        let shorter = Call::Renew { lock_id: "a".into(), ttl_ms: 100 };
        let story = on(Backend::RedisSentinel).call(0, 1, tries(), granted("a", 1)).call(
            10,
            500,
            shorter,
            not_held(),
        );
        story.fault_called(name, 20, 480, Voids::Nothing).rules()
    };
    for name in [
        "sentinel-master-stalls",
        "sentinel-failover-ordered",
        "sentinel-replicas-behind",
        "replica-promoted",
    ] {
        assert_eq!(during(name), [], "{name}");
    }
    assert_eq!(during("sentinel-killed"), [WholeTtl]);
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

/// A grant, a call of its holder that is answered at `ms`, and another after the promotion.
fn called_twice(
    ms: u64,
    (call, answer): (Call, Outcome),
    (again, then): (Call, Outcome),
) -> Story {
    failed_over()
        .call(0, 1, tries(), granted("a", 1))
        .call(ms - 1, ms, call, answer)
        .call(1_020, 1_030, again, then)
}

#[test]
fn a_grant_may_end_without_a_renewal_that_was_lost() {
    let renewed_at =
        |ms| found(&called_twice(ms, (renews("a"), renewed()), (renews("a"), not_held())));
    assert_eq!(renewed_at(KEPT_MS), excused_by(Write::Renewal));
    assert_eq!(renewed_at(KEPT_MS - 1), violates(WholeTtl));
}

#[test]
fn a_grant_may_go_on_if_its_unlock_was_lost() {
    let unlocked = || (unlocks("a"), Outcome::Unlocked);
    let unlocked_at = |ms| found(&called_twice(ms, unlocked(), unlocked()));
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

#[test]
fn a_loss_at_one_shard_excuses_nothing_at_the_others() {
    let at = |slots: &[RangeInclusive<u16>]| {
        let mut story = granted_twice(KEPT_MS, 1_200);
        story.backend = Backend::RedisCluster;
        story.faults[0].slots = Some(slots.to_vec());
        found(&story)
    };
    let slot = slot_of(b"r");
    assert_eq!(at(&[5_461..=10_922]), excused_by(Write::Grant), "slot {slot}");
    assert_eq!(at(&[0..=5_460, slot..=slot]), excused_by(Write::Grant));
    assert_eq!(at(&[0..=5_460, 10_923..=16_383]), violates(OneHolder));
    assert_eq!(at(&[]), violates(OneHolder));
}
