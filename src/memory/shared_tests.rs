//! Shared grants, rule by rule.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    Attempt, AttemptId, BackendError, Clock, Grant, Holder, Instant, LockId, Mode, ReleaseOf,
    Renewal, RequestId, WaiterBudget,
};
use tokio::sync::oneshot;

use super::{
    holders::{Held, Holders},
    slot::Ticket,
    table::{Entered, Table},
    table_tests::{attempt, limits, owner, reader, release},
};

const NOT_HELD: BackendError = BackendError::NotHeld { held: true };

type Turn = oneshot::Receiver<Result<Grant, BackendError>>;

fn table() -> Table {
    Table::new(Clock::from_fn(|| 1_000_000), &limits(100, 20_000))
}

fn wait(table: &mut Table, attempt: &Attempt, now: Instant) -> (Ticket, Turn) {
    match table.enter(attempt, &WaiterBudget::new(100), now).unwrap() {
        Entered::Waiting(ticket, turn) => (ticket, turn),
        Entered::Granted(grant) => panic!("granted at once: {grant:?}"),
    }
}

fn is_locked(result: &Result<Grant, BackendError>) -> bool {
    matches!(result, Err(BackendError::Locked { .. }))
}

fn granted(turn: &mut Turn) -> Grant {
    turn.try_recv().expect("the waiter's turn").unwrap()
}

fn repeatable(number: usize) -> Attempt {
    Attempt { request_id: RequestId::new(&number.to_string()).unwrap(), ..reader(60_000) }
}

/// The same request as another attempt.
fn again(attempt: &Attempt) -> Attempt {
    Attempt { id: AttemptId::random(), lock_id: LockId::random(), ..attempt.clone() }
}

#[test]
fn an_exclusive_lock_needs_no_more_memory_for_shared_ones() {
    assert_eq!(size_of::<Holders>(), size_of::<Held>());
}

#[test]
fn a_writer_is_granted_when_the_last_reader_has_left() {
    let (mut table, now) = (table(), Instant::now());
    let first = table.try_lock(&reader(1000), now).unwrap();
    let second = table.try_lock(&reader(1000), now).unwrap();
    let (_, mut writer) = wait(&mut table, &attempt(1000), now);
    table.unlock(&owner(&first), now).unwrap();
    assert!(writer.try_recv().is_err(), "one reader still holds");
    table.unlock(&owner(&second), now).unwrap();
    assert!(granted(&mut writer).token > second.token);
}

/// Trap: memory 58
#[test]
fn adjacent_readers_are_granted_together_and_the_writer_behind_them_waits() {
    let (mut table, now) = (table(), Instant::now());
    let held = table.try_lock(&attempt(1000), now).unwrap();
    let mut readers: Vec<_> = (0..3).map(|_| wait(&mut table, &reader(1000), now).1).collect();
    let (_, mut writer) = wait(&mut table, &attempt(1000), now);
    let (_, mut late) = wait(&mut table, &reader(1000), now);
    table.unlock(&owner(&held), now).unwrap();
    for turn in &mut readers {
        assert!(granted(turn).token > held.token);
    }
    assert!(writer.try_recv().is_err() && late.try_recv().is_err());
}

/// Trap: memory 57
#[test]
fn tries_of_both_modes_are_refused_while_a_writer_waits_for_readers() {
    let (mut table, now) = (table(), Instant::now());
    table.try_lock(&reader(1000), now).unwrap();
    let (_, _turn) = wait(&mut table, &attempt(1000), now);
    assert!(is_locked(&table.try_lock(&reader(1000), now)));
    assert!(is_locked(&table.try_lock(&attempt(1000), now)));
}

/// Trap: memory 58
#[test]
fn a_writer_that_leaves_lets_the_readers_behind_it_join() {
    let (mut table, now) = (table(), Instant::now());
    table.try_lock(&reader(1000), now).unwrap();
    let (writer, _turn) = wait(&mut table, &attempt(1000), now);
    let (_, mut first) = wait(&mut table, &reader(1000), now);
    let (_, mut second) = wait(&mut table, &reader(1000), now);
    let resource = attempt(1000).resource;
    table.leave(&resource, writer, now);
    granted(&mut first);
    granted(&mut second);
    assert!(table.try_lock(&reader(1000), now).is_ok(), "nobody waits any more");
}

/// Trap: memory 59
#[test]
fn a_renewal_of_one_reader_leaves_the_ends_of_others_alone() {
    let (mut table, now) = (table(), Instant::now());
    let (renewed, other) = (reader(1000), reader(1000));
    table.try_lock(&renewed, now).unwrap();
    table.try_lock(&other, now).unwrap();
    let renewal = |of: &Attempt| Renewal {
        resource: of.resource.clone(),
        lock_id: of.lock_id.clone(),
        ttl: of.ttl,
    };
    table.renew(&renewal(&renewed), now + Duration::from_millis(900)).unwrap();
    let later = now + Duration::from_millis(1000);
    assert_eq!(table.renew(&renewal(&other), later), Err(NOT_HELD));
    assert!(table.renew(&renewal(&renewed), later).is_ok());
}

#[test]
fn the_expiry_of_one_reader_ends_no_other() {
    let (mut table, now) = (table(), Instant::now());
    table.try_lock(&reader(1000), now).unwrap();
    let longer = table.try_lock(&reader(3000), now).unwrap();
    let (_, mut writer) = wait(&mut table, &attempt(1000), now);
    table.expire(now + Duration::from_millis(1000));
    assert!(writer.try_recv().is_err());
    assert_eq!(table.unlock(&owner(&longer), now + Duration::from_millis(2000)), Ok(()));
    granted(&mut writer);
}

#[test]
fn each_of_ten_thousand_readers_finds_its_own_grant_again() {
    let (mut table, now) = (table(), Instant::now());
    let asked: Vec<_> = (0..10_000).map(repeatable).collect();
    let grants: Vec<_> =
        asked.iter().map(|attempt| table.try_lock(attempt, now).unwrap()).collect();
    let (_, _writer) = wait(&mut table, &attempt(1000), now);
    for (attempt, grant) in asked.iter().zip(&grants) {
        let found = table.try_lock(&again(attempt), now).unwrap();
        assert_eq!((&found.lock_id, found.token), (&grant.lock_id, grant.token));
        assert!(!found.created);
    }
}

#[test]
fn a_shared_grant_asked_for_again_in_exclusive_mode_is_a_mismatch() {
    let (mut table, now) = (table(), Instant::now());
    let asked = repeatable(1);
    table.try_lock(&asked, now).unwrap();
    let other = Attempt { mode: Mode::Exclusive, ..again(&asked) };
    let mismatch = Err(BackendError::ReplayMismatch { field: "mode" });
    assert_eq!(table.try_lock(&other, now), mismatch);
    let entered = table.enter(&other, &WaiterBudget::new(1), now).map(drop);
    assert_eq!(entered, Err(BackendError::ReplayMismatch { field: "mode" }));
}

#[test]
fn the_clean_up_of_an_attempt_ends_its_own_shared_grant_only() {
    let (mut table, now) = (table(), Instant::now());
    let (first, second) = (Arc::new(repeatable(1)), repeatable(2));
    table.try_lock(&first, now).unwrap();
    let kept = table.try_lock(&second, now).unwrap();
    let undo = release(ReleaseOf::Attempt(Arc::clone(&first)));
    assert_eq!(table.unlock(&undo, now), Ok(()));
    assert_eq!(table.unlock(&undo, now), Err(NOT_HELD));
    assert_eq!(table.unlock(&owner(&kept), now), Ok(()));
}

#[test]
fn a_shared_grant_that_a_replay_has_claimed_is_not_undone() {
    let (mut table, now) = (table(), Instant::now());
    let first = Arc::new(repeatable(1));
    let replay = Arc::new(again(&first));
    table.try_lock(&first, now).unwrap();
    table.try_lock(&replay, now).unwrap();
    for attempt in [first, replay] {
        let undo = release(ReleaseOf::Attempt(attempt));
        assert_eq!(table.unlock(&undo, now), Err(NOT_HELD));
    }
}

#[test]
fn the_lock_id_of_a_live_shared_grant_is_refused_and_does_not_wait() {
    let (mut table, now) = (table(), Instant::now());
    let first = reader(1000);
    table.try_lock(&first, now).unwrap();
    let same = Attempt { id: AttemptId::random(), lock_id_given: true, ..first };
    assert!(is_locked(&table.try_lock(&same, now)));
    let entered = table.enter(&same, &WaiterBudget::new(1), now).map(drop);
    assert!(
        matches!(&entered, Err(BackendError::Invalid(violation)) if violation.field == "lock_id"),
        "{entered:?}"
    );
}

#[test]
fn of_two_waiters_with_one_lock_id_the_second_is_refused_in_its_turn() {
    let (mut table, now) = (table(), Instant::now());
    let held = table.try_lock(&attempt(1000), now).unwrap();
    let asked = reader(1000);
    let (_, mut first) = wait(&mut table, &asked, now);
    let (_, mut second) = wait(&mut table, &asked, now);
    let (_, mut third) = wait(&mut table, &reader(1000), now);
    table.unlock(&owner(&held), now).unwrap();
    granted(&mut first);
    let refused = second.try_recv().unwrap();
    assert!(matches!(refused, Err(BackendError::Invalid(_))), "{refused:?}");
    granted(&mut third);
}

#[test]
fn force_ends_all_shared_grants_and_hands_over() {
    let (mut table, now) = (table(), Instant::now());
    let grants: Vec<_> = (0..3).map(|_| table.try_lock(&reader(1000), now).unwrap()).collect();
    let (_, mut writer) = wait(&mut table, &attempt(5000), now);
    table.unlock(&release(ReleaseOf::Anyone), now).unwrap();
    granted(&mut writer);
    for grant in &grants {
        assert_eq!(table.unlock(&owner(grant), now), Err(NOT_HELD));
    }
    table.expire(now + Duration::from_millis(1000));
    assert_eq!(table.records(), 1, "an end of a reader must not end the writer");
}

#[test]
fn at_the_limit_of_holders_a_try_is_refused_and_a_wait_waits() {
    let mut table = Table::new(Clock::from_fn(|| 1_000_000), &limits(100, 2));
    let now = Instant::now();
    let first = table.try_lock(&reader(1000), now).unwrap();
    table.try_lock(&reader(1000), now).unwrap();
    assert_eq!(table.try_lock(&reader(1000), now), Err(BackendError::TooManyHolders));
    assert!(is_locked(&table.try_lock(&attempt(1000), now)));
    let (_, mut turn) = wait(&mut table, &reader(1000), now);
    table.unlock(&owner(&first), now).unwrap();
    granted(&mut turn);
}

#[test]
fn a_raised_limit_of_holders_admits_those_who_wait_for_it() {
    let mut table = Table::new(Clock::from_fn(|| 1_000_000), &limits(100, 1));
    let now = Instant::now();
    table.try_lock(&reader(1000), now).unwrap();
    let (_, mut first) = wait(&mut table, &reader(1000), now);
    let (_, mut second) = wait(&mut table, &reader(1000), now);
    table.set_limits(&limits(100, 2), now);
    granted(&mut first);
    assert!(second.try_recv().is_err());
}

#[test]
fn a_refusal_shows_the_oldest_shared_grant() {
    let (mut table, now) = (table(), Instant::now());
    let named = |name| Attempt { holder: Holder::new(name).unwrap(), ..reader(1000) };
    let first = table.try_lock(&named("first"), now).unwrap();
    let second = table.try_lock(&named("second"), now).unwrap();
    let shown = |table: &mut Table| match table.try_lock(&attempt(1000), now) {
        Err(BackendError::Locked { by: Some(grant) }) => {
            (grant.id, grant.mode, grant.holder.unwrap().as_str().to_owned())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(shown(&mut table), (first.id, Mode::Shared, "first".to_owned()));
    table.unlock(&owner(&first), now).unwrap();
    assert_eq!(shown(&mut table), (second.id, Mode::Shared, "second".to_owned()));
}
