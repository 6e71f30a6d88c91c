//! The table against a model: whatever is done to it, in any order.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::{sync::oneshot, time::Instant};

use super::table::{Entered, Table, Ticket};
use crate::lock::{
    Aim, Attempt, AttemptId, BackendError, Clock, FencingToken, Grant, LockId, Mode, Release,
    ReleaseOf, Renewal, RequestId, ResourceId, Ttl, WaiterBudget,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn attempt(ttl_ms: u64) -> Attempt {
    Attempt {
        id: AttemptId::random(),
        resource: ResourceId::new("r").unwrap(),
        lock_id: LockId::random(),
        lock_id_given: false,
        request_id: None,
        mode: Mode::Exclusive,
        holder: None,
        ttl: Ttl::new(Duration::from_millis(ttl_ms), DAY).unwrap(),
    }
}

fn release(of: ReleaseOf) -> Release {
    Release { resource: ResourceId::new("r").unwrap(), of, aim: Aim::default() }
}

fn owner(grant: &Grant) -> Release {
    release(ReleaseOf::Owner(grant.lock_id.clone()))
}

fn table() -> Table {
    Table::new(Clock::from_fn(|| 1_000_000), 3)
}

#[test]
fn tokens_rise_though_the_clock_stands_still_or_is_set_back() {
    let steps = std::sync::Mutex::new([500_u64, 500, 100, 900].into_iter());
    let clock = Clock::from_fn(move || steps.lock().unwrap().next().unwrap());
    let mut table = Table::new(clock, 3);
    let now = Instant::now();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        let grant = table.try_lock(&attempt(1000), now).unwrap();
        tokens.push(grant.token.unwrap().get());
        table.unlock(&owner(&grant), now).unwrap();
    }
    assert_eq!(tokens, [500, 501, 502, 900]);
}

/// Trap 27: a token stays for its grant's life.
#[test]
fn a_hundred_renewals_leave_the_token_as_it_was() {
    let (mut table, mut now) = (table(), Instant::now());
    let mut asked = attempt(1000);
    asked.request_id = RequestId::new("secret").unwrap();
    let grant = table.try_lock(&asked, now).unwrap();
    let renewal =
        Renewal { resource: asked.resource.clone(), lock_id: grant.lock_id, ttl: asked.ttl };
    for _ in 0..100 {
        now += Duration::from_millis(900);
        table.renew(&renewal, now).unwrap();
    }
    assert_eq!(table.try_lock(&asked, now).unwrap().token, grant.token);
}

#[test]
fn tokens_that_have_run_out_are_an_error_and_not_a_repetition() {
    let mut table = Table::new(Clock::from_fn(|| FencingToken::MAX.get()), 3);
    let now = Instant::now();
    let grant = table.try_lock(&attempt(1000), now).unwrap();
    table.unlock(&owner(&grant), now).unwrap();
    let refused = table.try_lock(&attempt(1000), now);
    assert!(matches!(refused, Err(BackendError::Unavailable(_))), "{refused:?}");
}

#[test]
fn one_waiter_too_many_is_refused() {
    let (mut table, now, budget) = (table(), Instant::now(), WaiterBudget::new(100));
    let _held = table.try_lock(&attempt(1000), now).unwrap();
    let waits: Vec<_> =
        (0..3).map(|_| table.enter(&attempt(1000), &budget, now).unwrap()).collect();
    let refused = table.enter(&attempt(1000), &budget, now);
    assert!(matches!(refused, Err(BackendError::TooManyWaiters(_))), "{refused:?}");
    drop(waits);
}

#[test]
fn a_renewal_of_an_expired_grant_does_not_revive_it() {
    let (mut table, now) = (table(), Instant::now());
    let grant = table.try_lock(&attempt(100), now).unwrap();
    let renewal = Renewal {
        resource: ResourceId::new("r").unwrap(),
        lock_id: grant.lock_id,
        ttl: Ttl::MIN,
    };
    let late = now + Duration::from_millis(100);
    assert_eq!(table.renew(&renewal, late), Err(BackendError::NotHeld { held: false }));
    assert_eq!(table.records(), 0);
}

#[test]
fn a_replay_with_another_lock_id_is_refused_and_changes_nothing() {
    let (mut table, now) = (table(), Instant::now());
    let mut first = attempt(1000);
    first.request_id = RequestId::new("secret").unwrap();
    let grant = table.try_lock(&first, now).unwrap();
    let mut other = Attempt { id: AttemptId::random(), lock_id: LockId::random(), ..first };
    other.lock_id_given = true;
    assert_eq!(
        table.try_lock(&other, now),
        Err(BackendError::ReplayMismatch { field: "lock_id" })
    );
    other.lock_id = grant.lock_id.clone();
    let again = table.try_lock(&other, now).unwrap();
    assert_eq!((again.token, again.created), (grant.token, false));
}

#[test]
fn a_table_gives_its_memory_back_when_the_locks_are_gone() {
    let (mut table, now) = (table(), Instant::now());
    for n in 0..50_000 {
        let mut attempt = attempt(1000);
        attempt.resource = ResourceId::new(&n.to_string()).unwrap();
        table.try_lock(&attempt, now).unwrap();
    }
    let grown = table.capacity();
    table.expire(now + Duration::from_secs(1));
    assert_eq!(table.records(), 0);
    assert!(table.capacity() * 8 < grown, "{} of {grown}", table.capacity());
}

#[derive(Clone, Debug)]
enum Step {
    Try,
    Enter,
    Unlock,
    UnlockStale,
    Force,
    Renew,
    Leave(usize),
    Undo,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Try),
        3 => Just(Step::Enter),
        3 => Just(Step::Unlock),
        1 => Just(Step::UnlockStale),
        1 => Just(Step::Force),
        1 => Just(Step::Renew),
        1 => (0..8_usize).prop_map(Step::Leave),
        1 => Just(Step::Undo),
        1 => (1..400_u64).prop_map(Step::Pass),
    ]
}

type Waiting = (Ticket, Arc<Attempt>, oneshot::Receiver<Grant>);

/// What a correct lock looks like from outside: who holds until when, who
/// waits in which order.
#[derive(Default)]
struct Model {
    held: Option<(Grant, Arc<Attempt>, Instant)>,
    waiting: Vec<Waiting>,
    last_token: Option<FencingToken>,
}

impl Model {
    fn granted(&mut self, grant: Grant, attempt: Arc<Attempt>) {
        assert!(self.held.is_none(), "two live grants");
        assert!(self.last_token < grant.token, "tokens must rise");
        assert!(grant.created);
        self.last_token = grant.token;
        let expires = grant.since + grant.ttl;
        self.held = Some((grant, attempt, expires));
    }

    /// The grant ended: the first waiter, and nobody else, must hold now.
    fn ended(&mut self) {
        self.held = None;
        if self.waiting.is_empty() {
            return;
        }
        let (_, attempt, mut turn) = self.waiting.remove(0);
        self.granted(turn.try_recv().expect("the first waiter's turn"), attempt);
    }

    fn pass_to(&mut self, now: Instant) {
        while self.held.as_ref().is_some_and(|(_, _, expires)| *expires <= now) {
            self.ended();
        }
        for (_, _, turn) in &mut self.waiting {
            assert!(turn.try_recv().is_err(), "served out of turn");
        }
    }
}

proptest! {
    #[test]
    fn it_behaves_like_a_fair_fenced_lock(steps in prop::collection::vec(step(), 1..120)) {
        let (mut table, mut model, mut now) = (table(), Model::default(), Instant::now());
        let budget = WaiterBudget::new(100);
        let stale = LockId::random();
        for step in steps {
            let attempt = Arc::new(attempt(300));
            match step {
                Step::Try => match table.try_lock(&attempt, now) {
                    Ok(grant) => model.granted(grant, attempt),
                    Err(error) => {
                        prop_assert_eq!(error, BackendError::Locked { holder: None });
                        prop_assert!(model.held.is_some());
                    }
                },
                Step::Enter => match table.enter(&attempt, &budget, now) {
                    Ok(Entered::Granted(grant)) => model.granted(grant, attempt),
                    Ok(Entered::Waiting(ticket, turn)) => {
                        model.waiting.push((ticket, attempt, turn));
                    }
                    Err(_) => prop_assert_eq!(model.waiting.len(), 3),
                },
                Step::Unlock => if let Some((grant, ..)) = &model.held {
                    prop_assert_eq!(table.unlock(&owner(grant), now), Ok(()));
                    model.ended();
                },
                Step::UnlockStale => {
                    let refused = table.unlock(&release(ReleaseOf::Owner(stale.clone())), now);
                    let held = model.held.is_some();
                    prop_assert_eq!(refused, Err(BackendError::NotHeld { held }));
                }
                Step::Force => {
                    let forced = table.unlock(&release(ReleaseOf::Anyone), now);
                    prop_assert_eq!(forced.is_ok(), model.held.is_some());
                    if forced.is_ok() { model.ended(); }
                }
                Step::Renew => if let Some((grant, _, expires)) = &mut model.held {
                    let renewal = Renewal {
                        resource: ResourceId::new("r").unwrap(),
                        lock_id: grant.lock_id.clone(),
                        ttl: Ttl::new(Duration::from_millis(500), DAY).unwrap(),
                    };
                    let renewed = table.renew(&renewal, now).unwrap();
                    *expires = now + renewed.ttl;
                },
                Step::Leave(nth) => if nth < model.waiting.len() {
                    let (ticket, ..) = model.waiting.remove(nth);
                    table.leave(&ResourceId::new("r").unwrap(), ticket);
                },
                Step::Undo => if let Some((_, attempt, _)) = &model.held {
                    let undo = release(ReleaseOf::Attempt(Arc::clone(attempt)));
                    prop_assert_eq!(table.unlock(&undo, now), Ok(()));
                    model.ended();
                },
                Step::Pass(ms) => {
                    now += Duration::from_millis(ms);
                    table.expire(now);
                }
            }
            model.pass_to(now);
            prop_assert_eq!(table.records(), usize::from(model.held.is_some()));
        }
    }
}
