//! Locks and waits that must survive an outage, and resources that must be free after it.

use crate::{
    check::{
        Rule::{
            InOrder, OneHolder, OwnUnlock, RenewedSurvives, Served, TriesGranted, WaitsSurvive,
        },
        story::{
            Story, granted, granted_after, not_held, on, renewed, renews, story, tries,
            tries_with, unknown, unlocks, waits,
        },
    },
    faults::Voids,
    history::{Acquisition, Call, Granted, Outcome},
    world::Backend,
};

/// A lock with a TTL of 1 s that is renewed every 300 ms, and is lost after an outage that
/// begins at 350 ms.
fn lost_after(outage_ms: u64) -> Story {
    on(Backend::Redis)
        .call(0, 1, tries(), granted("a", 1))
        .call(300, 301, renews("a"), renewed())
        .call(600, 900, renews("a"), unknown())
        .call(930, 1_200, renews("a"), unknown())
        .call(1_240, 1_250, renews("a"), not_held())
        .fault(350, 350 + outage_ms, Voids::Nothing)
}

#[test]
fn a_lock_that_is_renewed_in_time_and_lost_after_a_short_outage_is_found() {
    assert_eq!(lost_after(499).rules(), [RenewedSurvives]);
    assert!(lost_after(501).rules().is_empty(), "the outage was longer than half the TTL");
}

#[test]
fn a_lock_that_was_not_renewed_in_time_may_be_lost() {
    let asked_again_at = |at_ms| {
        on(Backend::Redis)
            .call(0, 1, tries(), granted("a", 1))
            .call(at_ms, at_ms + 1, renews("a"), unknown())
            .call(800, 801, renews("a"), unknown())
            .call(1_050, 1_060, renews("a"), not_held())
            .rules()
    };
    assert_eq!(asked_again_at(430), [RenewedSurvives]);
    assert!(asked_again_at(440).is_empty());
}

#[test]
fn a_renewed_lock_that_was_ended_on_purpose_or_by_a_fault_may_be_lost() {
    let with = |call, outcome| lost_after(100).call(400, 410, call, outcome).rules();
    assert!(with(unlocks("a"), unknown()).is_empty());
    assert!(with(Call::Force, Outcome::Unlocked).is_empty());
    assert_eq!(with(unlocks("a"), Outcome::Unavailable), [RenewedSurvives]);
    assert!(lost_after(100).fault(700, 710, Voids::Grants).rules().is_empty());
}

#[test]
fn a_wait_that_a_short_outage_ends_is_found() {
    let ended_by = |outage_ms: u64, outcome: Outcome| {
        story()
            .call(0, 7_000, waits(10_000), outcome)
            .fault(1_000, 1_000 + outage_ms, Voids::Nothing)
            .rules()
    };
    assert_eq!(ended_by(3_990, Outcome::Unavailable), [WaitsSurvive]);
    assert!(ended_by(4_010, Outcome::Unavailable).is_empty());
    assert!(ended_by(3_990, unknown()).is_empty());
}

#[test]
fn a_backend_without_space_may_refuse_new_waits_but_must_not_end_queued_ones() {
    let ended = |name: &str, from_ms, to_ms| {
        on(Backend::Redis)
            .call(0, to_ms, waits(20_000), Outcome::Unavailable)
            .fault_called(name, from_ms, to_ms, Voids::Nothing)
            .rules()
    };
    assert!(ended("redis-out-of-memory", 990, 1_500).is_empty());
    assert_eq!(ended("redis-out-of-memory", 1_010, 7_000), [WaitsSurvive]);
    assert!(ended("redis-suspended", 1_010, 7_000).is_empty());
    assert_eq!(ended("etcd-out-of-space", 1_010, 4_000), [WaitsSurvive]);
}

#[test]
fn outages_that_follow_each_other_closely_count_as_one() {
    let apart = |ms: u64| {
        story()
            .call(0, 7_000, waits(10_000), Outcome::Unavailable)
            .fault(1_000, 3_000, Voids::Nothing)
            .fault(3_000 + ms, 5_500 + ms, Voids::Nothing)
            .rules()
    };
    assert!(apart(900).is_empty());
    assert_eq!(apart(1_100), [WaitsSurvive]);
}

#[test]
fn a_wait_ends_with_its_process() {
    let story = story().call(0, 100, waits(10_000), Outcome::Unavailable).fault_called(
        "leasehold-restarted",
        50,
        200,
        Voids::Nothing,
    );
    assert!(story.rules().is_empty());
}

/// The place of a dead process is dropped once somebody has asked for that process.
#[test]
fn the_first_refused_try_after_a_dead_waiter_only_asks_where_nodes_fail_over() {
    for backend in [Backend::RedisSentinel, Backend::RedisCluster] {
        let refused_again_at = |at_ms| {
            on(backend)
                .call(0, 10, waits(10), Outcome::WaitDeadline)
                .call(7_000, 7_001, tries(), Outcome::Locked)
                .call(at_ms, at_ms + 1, tries(), Outcome::Locked)
                .rules()
        };
        assert_eq!(refused_again_at(12_500), []);
        assert_eq!(refused_again_at(12_510), [TriesGranted]);
    }
}

#[test]
fn a_try_that_is_refused_long_after_the_last_holder_is_found() {
    let refused_at = |at_ms| {
        on(Backend::Redis)
            .call(0, 1, tries(), granted("a", 1))
            .call(10, 2_000, waits(2_000), Outcome::WaitDeadline)
            .call(at_ms, at_ms + 1, tries(), Outcome::Locked)
            .rules()
    };
    assert!(refused_at(7_490).is_empty());
    assert_eq!(refused_at(7_510), [TriesGranted]);
}

#[test]
fn a_try_may_be_refused_for_a_while_after_a_process_died() {
    let refused_at = |at_ms| {
        on(Backend::Redis)
            .died(0, waits(15_000))
            .fault_called("crowd-killed", 3_000, 3_100, Voids::Nothing)
            .call(at_ms, at_ms + 1, tries(), Outcome::Locked)
            .rules()
    };
    // The wait may have been granted just before its process died, for at least 2 s, and for 2 s
    // Redis may ask for the process.
    assert!(refused_at(13_050).is_empty());
    assert_eq!(refused_at(13_150), [TriesGranted]);
    let alive = on(Backend::Redis).died(0, waits(15_000)).call(
        13_150,
        13_151,
        tries(),
        Outcome::Locked,
    );
    assert!(alive.rules().is_empty(), "no process was killed, so it may still wait");
}

#[test]
fn a_wait_that_was_served_late_is_found_too() {
    let served_at = |at_ms: u64| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(500, 501, unlocks("a"), Outcome::Unlocked)
            .call(10, at_ms, waits(15_000), granted_after(at_ms - 20, "b", 2))
            .rules()
    };
    // For the last 2 s, the lock may have been handed over to a waiter that never confirmed.
    assert!(served_at(7_950).is_empty());
    assert_eq!(served_at(8_050), [Served]);
}

#[test]
fn a_fault_excuses_its_duration_and_its_consequences() {
    let not_served_for = |wait_ms| {
        story()
            .call(10, wait_ms - 40, waits(wait_ms), Outcome::WaitDeadline)
            .fault(1_000, 2_000, Voids::Nothing)
            .rules()
    };
    // 5.5 s are always allowed. The fault adds the 1 s that it lasted, and 4 s more.
    assert!(not_served_for(10_500).is_empty());
    assert_eq!(not_served_for(10_700), [Served]);
}

#[test]
fn faults_at_the_same_time_excuse_their_consequences_once() {
    let not_served_for = |wait_ms| {
        story()
            .call(10, wait_ms - 40, waits(wait_ms), Outcome::WaitDeadline)
            .fault(1_000, 2_000, Voids::Nothing)
            .fault(1_500, 2_000, Voids::Nothing)
            .rules()
    };
    assert!(not_served_for(10_500).is_empty());
    assert_eq!(not_served_for(10_700), [Served]);
}

#[test]
fn a_wait_that_is_overtaken_long_after_a_fault_is_found() {
    let rules = |after_ms: u64| {
        let at = 3_000 + after_ms;
        on(Backend::Redis)
            .call(0, 1, waits(1_000), granted("z", 1))
            .call(1_000, at + 3_000, waits(30_000), granted_after(at + 1_990, "c", 3))
            .fault(2_000, 3_000, Voids::Nothing)
            .call(at, at + 500, waits(4_000), granted_after(499, "b", 2))
            .call(at + 900, at + 901, unlocks("b"), Outcome::Unlocked)
            .rules()
    };
    assert!(!rules(4_000).contains(&InOrder), "the wait may only just have queued again");
    assert!(rules(4_500).contains(&InOrder));
}

#[test]
fn the_loss_of_a_follower_costs_no_wait_its_place() {
    let rules = |name: &str, from_ms| {
        on(Backend::Etcd)
            .call(0, 1, tries(), granted("a", 1))
            .call(100, 5_900, waits(8_000), granted_after(5_790, "c", 3))
            .fault_called(name, from_ms, 4_000, Voids::Nothing)
            .call(4_500, 5_000, waits(8_000), granted_after(490, "b", 2))
            .call(5_300, 5_301, unlocks("b"), Outcome::Unlocked)
            .rules()
    };
    assert!(rules("etcd-used-follower-suspended", 1_200).contains(&InOrder));
    assert!(!rules("etcd-used-follower-suspended", 1_000).contains(&InOrder));
    assert!(!rules("etcd-leader-killed", 1_200).contains(&InOrder));
}

fn foreign(owner: &str) -> Call {
    let lock_id = Some(owner.into());
    Call::ForeignTry(Acquisition { ttl_ms: 1_000, lock_id, ..Acquisition::default() })
}

fn taken(owner: &str) -> Outcome {
    let lock_id = owner.to_owned();
    Outcome::Granted(Granted { lock_id, ttl_ns: 1_000_000_000, ..Granted::default() })
}

#[test]
fn a_foreign_client_of_redis_is_a_holder_too() {
    let granted_at = |at_ms| {
        on(Backend::Redis)
            .call(0, 1, foreign("a"), taken("a"))
            .call(at_ms, at_ms + 1, tries(), granted("b", 1))
            .rules()
    };
    assert_eq!(granted_at(900), [OneHolder]);
    assert!(granted_at(940).is_empty());
    let unlocked = on(Backend::Redis)
        .call(0, 1, foreign("a"), taken("a"))
        .call(10, 11, unlocks("a"), Outcome::Unlocked)
        .call(20, 21, tries(), granted("b", 1));
    assert!(unlocked.rules().is_empty());
}

/// It took the resource when the grant had ended, and its answer was lost.
#[test]
fn an_unlock_may_end_what_an_unanswered_try_of_the_same_owner_took() {
    let rules = |call: Call, tried: Outcome| {
        on(Backend::Redis)
            .call(0, 1, tries_with("o"), granted("o", 5))
            .call(500, 900, call, tried)
            .call(2_000, 2_001, unlocks("o"), Outcome::Unlocked)
            .rules()
    };
    for call in [foreign("o"), tries_with("o")] {
        assert!(rules(call.clone(), unknown()).is_empty());
        assert_eq!(rules(call, Outcome::Locked), [OwnUnlock]);
    }
}

/// The record of the dead grant outlived it, and was taken for the record of the foreign
/// lock.
#[test]
fn a_request_that_finds_a_dead_grant_under_a_foreign_lock_is_found() {
    let repeats = |request_id: &str| {
        let (lock_id, request_id) = (Some("o".into()), Some(request_id.into()));
        Call::Try(Acquisition { ttl_ms: 1_000, lock_id, request_id, ..Acquisition::default() })
    };
    let rules = |repeated| {
        on(Backend::Redis)
            .call(0, 1, repeats("q"), granted("o", 5))
            .call(10, 11, unlocks("o"), Outcome::Unlocked)
            .call(20, 21, foreign("o"), taken("o"))
            .call(30, 31, repeats("q"), repeated)
            .rules()
    };
    assert!(rules(granted("o", 5)).contains(&OneHolder));
    assert!(rules(Outcome::Locked).is_empty());
}
