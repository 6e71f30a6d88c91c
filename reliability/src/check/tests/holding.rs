//! How long grants are held: one holder at a time, whole TTLs, and no revival.

use crate::{
    check::{
        Rule::{NoRevival, OneHolder, OwnUnlock, TokensRise, WholeTtl},
        story::{
            granted, not_held, on, renewed, renews, repeats, story, tries, tries_with, unknown,
            unlocks, waits,
        },
    },
    faults::Voids,
    history::{Acquisition, Call, Granted, Outcome},
    world::Backend,
};

#[test]
fn two_holders_before_a_safe_deadline_are_found() {
    let story =
        story().call(0, 1, tries(), granted("a", 1)).call(900, 929, tries(), granted("b", 2));
    assert_eq!(story.rules(), [OneHolder]);
}

#[test]
fn a_holder_after_the_safe_deadline_of_another_is_fine() {
    let story =
        story().call(0, 1, tries(), granted("a", 1)).call(900, 931, tries(), granted("b", 2));
    assert!(story.rules().is_empty());
}

#[test]
fn a_renewal_moves_the_safe_deadline() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(500, 501, renews("a"), renewed())
        .call(1400, 1429, tries(), granted("b", 2));
    assert_eq!(story.rules(), [OneHolder]);
}

#[test]
fn an_unanswered_renewal_that_shortens_the_ttl_moves_the_safe_deadline() {
    let shorter = Call::Renew { lock_id: "a".into(), ttl_ms: 200 };
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 101, shorter, unknown())
        .call(400, 401, tries(), granted("b", 2));
    assert!(story.rules().is_empty());
}

#[test]
fn an_unlock_may_end_the_grant_at_its_invocation_even_if_unanswered() {
    for outcome in [unknown(), Outcome::Unlocked] {
        let story = story()
            .call(0, 1, tries(), granted("a", 1))
            .call(100, 300, unlocks("a"), outcome)
            .call(110, 120, tries(), granted("b", 2));
        assert!(story.rules().is_empty());
    }
}

#[test]
fn an_unlock_that_did_not_happen_ends_nothing() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 101, unlocks("a"), Outcome::Unavailable)
        .call(110, 120, tries(), granted("b", 2));
    assert_eq!(story.rules(), [OneHolder]);
}

#[test]
fn a_forced_unlock_may_have_ended_any_grant() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 300, Call::Force, unknown())
        .call(110, 120, tries(), granted("b", 2));
    assert!(story.rules().is_empty());
}

#[test]
fn a_forced_unlock_that_was_over_before_a_grant_did_not_end_it() {
    let story = story()
        .call(0, 1, Call::Force, Outcome::Unlocked)
        .call(2, 3, tries(), granted("a", 1))
        .call(100, 120, tries(), granted("b", 2));
    assert_eq!(story.rules(), [OneHolder]);
}

#[test]
fn lost_data_excuses_only_grants_that_were_made_before_the_loss_was_over() {
    let before = story()
        .call(0, 1, tries(), granted("a", 1))
        .fault(50, 60, Voids::Grants)
        .call(110, 120, tries(), granted("b", 2));
    assert!(before.rules().is_empty());
    let after = story()
        .fault(50, 60, Voids::Grants)
        .call(70, 71, tries(), granted("a", 1))
        .call(110, 120, tries(), granted("b", 2));
    assert_eq!(after.rules(), [OneHolder]);
    let elsewhere = story()
        .call(0, 1, tries(), granted("a", 1))
        .fault(50, 60, Voids::GrantOf("other".into()))
        .call(110, 120, tries(), granted("b", 2));
    assert_eq!(elsewhere.rules(), [OneHolder]);
}

#[test]
fn the_safe_deadline_counts_from_the_end_of_the_wait() {
    let waited = |waited_ms: u64| {
        Outcome::Granted(Granted {
            lock_id: "a".into(),
            token: 1,
            ttl_ns: 1_000_000_000,
            waited_ns: waited_ms * 1_000_000,
            ..Granted::default()
        })
    };
    let story_of = |waited_ms| {
        story().call(0, 600, waits(2_000), waited(waited_ms)).call(
            1_200,
            1_210,
            tries(),
            granted("b", 2),
        )
    };
    assert_eq!(story_of(500).rules(), [OneHolder]);
    assert!(story_of(200).rules().is_empty());
}

#[test]
fn a_lock_not_found_answer_before_the_safe_deadline_is_found() {
    for call in [renews("a"), unlocks("a")] {
        let early = story().call(0, 1, tries(), granted("a", 1)).call(
            900,
            929,
            call.clone(),
            not_held(),
        );
        assert_eq!(early.rules(), [WholeTtl]);
        let late =
            story().call(0, 1, tries(), granted("a", 1)).call(900, 931, call, not_held());
        assert!(late.rules().is_empty());
    }
}

#[test]
fn a_ttl_shorter_than_asked_for_is_found() {
    let asks = |ttl_ms| Call::Try(Acquisition { ttl_ms, ..Acquisition::default() });
    assert_eq!(story().call(0, 1, asks(1_001), granted("a", 1)).rules(), [WholeTtl]);
    assert!(story().call(0, 1, asks(1_000), granted("a", 1)).rules().is_empty());
}

#[test]
fn a_wait_reported_longer_than_it_took_is_found() {
    let answered = |waited_ns| {
        Outcome::Granted(Granted {
            lock_id: "a".into(),
            token: 1,
            ttl_ns: 2_000_000_000,
            waited_ns,
            ..Granted::default()
        })
    };
    assert_eq!(story().call(0, 100, waits(1_000), answered(100_000_001)).rules(), [WholeTtl]);
    assert!(story().call(0, 100, waits(1_000), answered(100_000_000)).rules().is_empty());
}

#[test]
fn a_renewal_after_an_unlock_is_found() {
    let story_of = |renewed_at| {
        story()
            .call(0, 1, tries(), granted("a", 1))
            .call(100, 110, unlocks("a"), Outcome::Unlocked)
            .call(renewed_at, 120, renews("a"), renewed())
    };
    assert_eq!(story_of(111).rules(), [NoRevival]);
    assert!(
        story_of(109).rules().is_empty(),
        "the calls overlap, so the renewal may have come first"
    );
}

#[test]
fn a_renewal_after_the_grant_of_another_client_is_found() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(1_100, 1_101, tries(), granted("b", 2))
        .call(1_102, 1_103, renews("a"), renewed());
    assert!(story.rules().contains(&NoRevival));
}

#[test]
fn a_renewal_after_a_forced_unlock_is_found() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 110, Call::Force, Outcome::Unlocked)
        .call(111, 120, renews("a"), renewed());
    assert_eq!(story.rules(), [NoRevival]);
}

#[test]
fn a_renewal_well_after_the_ttl_is_found_where_expiry_is_exact() {
    let story_on = |backend, at| {
        on(backend)
            .call(0, 1, tries(), granted("a", 1))
            .call(at, at + 1, renews("a"), renewed())
            .rules()
    };
    assert_eq!(story_on(Backend::Memory, 1_060), [NoRevival]);
    assert_eq!(story_on(Backend::Redis, 1_060), [NoRevival]);
    assert!(story_on(Backend::Memory, 1_050).is_empty());
    assert!(story_on(Backend::Etcd, 5_000).is_empty(), "an election prolongs leases");
}

#[test]
fn a_second_unlock_that_succeeds_is_found() {
    let story_of =
        |first| {
            story()
                .call(0, 1, tries(), granted("a", 1))
                .call(100, 110, unlocks("a"), first)
                .call(111, 120, unlocks("a"), Outcome::Unlocked)
        };
    assert_eq!(story_of(Outcome::Unlocked).rules(), [OwnUnlock]);
    assert!(story_of(unknown()).rules().is_empty());
}

#[test]
fn an_unlock_before_a_grant_ended_an_earlier_grant_of_the_same_lock_id() {
    let story = story()
        .call(0, 10, unlocks("a"), Outcome::Unlocked)
        .call(20, 30, tries_with("a"), granted("a", 1))
        .call(40, 50, unlocks("a"), Outcome::Unlocked);
    assert!(!story.rules().contains(&OwnUnlock), "{:?}", story.rules());
}

#[test]
fn a_grant_that_a_restore_brought_back_is_no_revival() {
    let story = story()
        .call(0, 1, tries(), granted("a", 1))
        .call(100, 110, unlocks("a"), Outcome::Unlocked)
        .fault_called("etcd-restored", 120, 130, Voids::GrantsAndTokens)
        .call(140, 141, renews("a"), renewed());
    assert!(story.rules().is_empty());
}

#[test]
fn a_grant_that_was_found_again_is_one_grant() {
    let story = story()
        .call(0, 1, repeats("q"), granted("a", 1))
        .call(100, 101, repeats("q"), granted("a", 1))
        .call(1_020, 1_021, renews("a"), not_held());
    assert_eq!(story.rules(), [WholeTtl], "the second call started its TTL again");
}

#[test]
fn a_flushed_grant_must_not_come_back() {
    let story_of = |voids| {
        on(Backend::Redis)
            .call(0, 1, tries(), granted("a", 1))
            .call(100, 110, unlocks("a"), Outcome::Unlocked)
            .fault_called("redis-flushed", 120, 130, voids)
            .call(140, 141, renews("a"), renewed())
    };
    assert_eq!(story_of(Voids::Grants).rules(), [NoRevival]);
    assert_eq!(story_of(Voids::GrantsAndTokens).rules(), [NoRevival]);
}

#[test]
fn only_a_fault_during_a_grant_prolongs_it() {
    for name in ["redis-clock-back", "redis-holder-without-expiry"] {
        let story_of = |from, to| {
            on(Backend::Redis)
                .fault_called(name, from, to, Voids::Nothing)
                .call(100, 101, tries(), granted("a", 1))
                .call(1_500, 1_501, renews("a"), renewed())
                .rules()
        };
        assert!(story_of(200, 1_900).is_empty(), "{name}");
        assert_eq!(story_of(10, 20), [NoRevival], "{name}");
        assert_eq!(story_of(1_600, 1_700), [NoRevival], "{name}");
    }
}

#[test]
fn a_renewal_that_leasehold_repeated_may_itself_have_ended_the_grant() {
    let shorter = Call::Renew { lock_id: "a".into(), ttl_ms: 300 };
    let story_of = |fault_at, over| {
        on(Backend::Etcd)
            .call(0, 1, tries(), granted("a", 1))
            .fault_called("network-replies-lost", fault_at, fault_at + 10, Voids::Nothing)
            .call(100, over, shorter.clone(), not_held())
            .rules()
    };
    assert!(story_of(150, 800).is_empty());
    assert!(story_of(900, 800).contains(&WholeTtl), "no reply was lost");
    assert!(story_of(150, 300).contains(&WholeTtl), "the call was too short for a second try");
}

#[test]
fn calls_after_a_renewal_that_ended_the_grant_are_accepted() {
    let shorter = Call::Renew { lock_id: "a".into(), ttl_ms: 300 };
    let story_of = |next_at, fault_at| {
        on(Backend::Etcd)
            .call(0, 1, tries(), granted("a", 1))
            .fault_called("network-replies-lost", fault_at, fault_at + 10, Voids::Nothing)
            .call(100, 800, shorter.clone(), not_held())
            .call(next_at, next_at + 10, tries(), granted("b", 2))
            .call(810, 820, unlocks("a"), not_held())
            .rules()
    };
    assert!(story_of(500, 150).is_empty());
    assert!(story_of(200, 150).contains(&OneHolder), "the grant had not ended by then");
    assert!(story_of(500, 900).contains(&OneHolder), "no reply was lost");
}

#[test]
fn an_earlier_grant_with_a_higher_token_is_no_successor() {
    let story_of = |fault_at| {
        on(Backend::Etcd)
            .call(0, 1, tries(), granted("b", 9))
            .fault_called("etcd-restored", fault_at, fault_at + 10, Voids::GrantsAndTokens)
            .call(100, 110, tries(), granted("a", 4))
            .call(120, 121, renews("a"), renewed())
            .call(130, 140, unlocks("a"), Outcome::Unlocked)
            .rules()
    };
    assert!(story_of(50).is_empty());
    assert!(story_of(150).contains(&TokensRise), "the restore came after both grants");
}

#[test]
fn a_released_grant_that_a_restore_brought_back_may_end_at_any_time() {
    let story = |fault: &str, unlocked_at| {
        on(Backend::Etcd)
            .call(0, 10, tries(), granted("a", 1))
            .fault_called(fault, 600, 700, Voids::GrantsAndTokens)
            .call(unlocked_at, unlocked_at + 10, unlocks("a"), Outcome::Unlocked)
            .call(750, 760, renews("a"), renewed())
            .call(800, 810, renews("a"), not_held())
    };
    assert!(story("etcd-restored", 610).rules().is_empty());
    assert!(story("some-fault", 610).rules().contains(&WholeTtl));
    assert!(
        !story("etcd-restored", 20).rules().is_empty(),
        "the grant was unlocked before the data set was saved"
    );
}

#[test]
fn an_unreleased_grant_that_a_restore_brought_back_lasts_once_it_is_renewed() {
    let story = on(Backend::Etcd)
        .call(0, 10, tries(), granted("a", 1))
        .fault_called("etcd-restored", 100, 200, Voids::GrantsAndTokens)
        .call(300, 310, renews("a"), renewed())
        .call(400, 410, renews("a"), not_held());
    assert_eq!(story.rules(), [WholeTtl]);
}

#[test]
fn an_unlock_with_a_lost_reply_on_etcd_may_succeed_after_another_call_ended_the_grant() {
    let story = |fault_at| {
        on(Backend::Etcd)
            .call(0, 10, tries(), granted("a", 1))
            .fault_called("network-replies-lost", fault_at, fault_at + 50, Voids::Nothing)
            .call(100, 110, Call::Force, Outcome::Unlocked)
            .call(200, 300, unlocks("a"), Outcome::Unlocked)
    };
    assert!(story(180).rules().is_empty());
    assert_eq!(story(400).rules(), [OwnUnlock]);
}

#[test]
fn a_greater_token_is_no_successor_if_the_order_of_tokens_was_lost() {
    let story = |voids| {
        on(Backend::Redis)
            .call(0, 60, tries(), granted("b", 9))
            .fault_called("redis-flushed", 40, 41, voids)
            .call(50, 70, tries(), granted("a", 4))
            .call(80, 81, renews("a"), renewed())
            .rules()
    };
    assert!(!story(Voids::GrantsAndTokens).contains(&NoRevival));
    assert!(story(Voids::Grants).contains(&NoRevival));
}
