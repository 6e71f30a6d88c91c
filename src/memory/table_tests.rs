//! The table against a model: any operations in any order.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    Attempt, AttemptId, BackendError, Clock, FencingToken, Grant, Instant, LockId, Mode,
    Release, ReleaseOf, Renewal, RequestId, ResourceId, Settings, Ttl, WaiterBudget,
};
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::{
    slot::Ticket,
    table::{Entered, Table},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn attempt(ttl_ms: u64) -> Attempt {
    Attempt::new(
        ResourceId::new("r").unwrap(),
        Ttl::new(Duration::from_millis(ttl_ms), DAY).unwrap(),
    )
}

/// Like [`attempt`], for a shared grant.
pub(super) fn reader(ttl_ms: u64) -> Attempt {
    Attempt { mode: Mode::Shared, ..attempt(ttl_ms) }
}

pub(super) fn release(of: ReleaseOf) -> Release {
    Release::new(ResourceId::new("r").unwrap(), of)
}

pub(super) fn owner(grant: &Grant) -> Release {
    release(ReleaseOf::Owner(grant.lock_id.clone()))
}

pub(super) fn limits(waiters_max: usize, holders_max: usize) -> Settings {
    Settings {
        waiters_per_resource_max: waiters_max,
        holders_per_resource_max: holders_max,
        ..Settings::default()
    }
}

/// A table with at most three waiters and three holders a resource.
fn table() -> Table {
    Table::new(Clock::from_fn(|| 1_000_000), &limits(3, 3))
}

/// Trap: memory 26
#[test]
fn tokens_rise_though_the_clock_stands_still_or_is_set_back() {
    let steps = std::sync::Mutex::new([500_u64, 500, 100, 900].into_iter());
    let clock = Clock::from_fn(move || steps.lock().unwrap().next().unwrap());
    let mut table = Table::new(clock, &limits(3, 3));
    let now = Instant::now();
    let mut tokens = Vec::new();
    for _ in 0..4 {
        let grant = table.try_lock(&attempt(1000), now).unwrap();
        tokens.push(grant.token.unwrap().get());
        table.unlock(&owner(&grant), now).unwrap();
    }
    assert_eq!(tokens, [500, 501, 502, 900]);
}

/// A grant keeps its token.
/// Trap: memory 27
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
    let mut table = Table::new(Clock::from_fn(|| FencingToken::MAX.get()), &limits(3, 3));
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

/// Trap: memory 13
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

/// Trap: memory 23
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

#[derive(Clone, Debug)]
enum Step {
    Try(Mode),
    Enter(Mode),
    Unlock(usize),
    UnlockStale,
    Force,
    Renew(usize),
    Leave(usize),
    Undo(usize),
    Pass(u64),
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => mode().prop_map(Step::Try),
        6 => mode().prop_map(Step::Enter),
        5 => (0..3_usize).prop_map(Step::Unlock),
        1 => Just(Step::UnlockStale),
        1 => Just(Step::Force),
        2 => (0..3_usize).prop_map(Step::Renew),
        2 => (0..8_usize).prop_map(Step::Leave),
        1 => (0..3_usize).prop_map(Step::Undo),
        2 => (1..400_u64).prop_map(Step::Pass),
    ]
}

type Waiting = (Ticket, Arc<Attempt>, oneshot::Receiver<Result<Grant, BackendError>>);

/// The visible state of a correct lock: who holds it until when, and who waits
/// in which order.
#[derive(Default)]
struct Model {
    held: Vec<(Grant, Arc<Attempt>, Instant)>,
    waiting: Vec<Waiting>,
    last_token: Option<FencingToken>,
}

impl Model {
    /// The refusal of a try that is no replay; `None` if it must be granted.
    fn refuses(&self, mode: Mode) -> Option<BackendError> {
        if self.held.is_empty() {
            return None;
        }
        let is_shared = mode == Mode::Shared && self.may_share();
        if is_shared && self.held.len() == 3 {
            return Some(BackendError::TooManyHolders);
        }
        let is_refused = !is_shared || !self.waiting.is_empty();
        is_refused.then_some(BackendError::Locked { by: None })
    }

    fn may_share(&self) -> bool {
        self.held.iter().all(|(_, attempt, _)| attempt.mode == Mode::Shared)
    }

    fn granted(&mut self, grant: Grant, attempt: Arc<Attempt>) {
        let may_join = attempt.mode == Mode::Shared && self.may_share() && self.held.len() < 3;
        assert!(self.held.is_empty() || may_join, "two grants that exclude each other");
        assert!(self.last_token < grant.token, "tokens must rise");
        assert!(grant.created);
        self.last_token = grant.token;
        let expires = grant.since + grant.ttl;
        self.held.push((grant, attempt, expires));
    }

    /// A grant or a wait has ended: exactly the waiters whose turn has come must hold now.
    fn hand_over(&mut self) {
        while let Some((_, attempt, _)) = self.waiting.first() {
            let may_join =
                attempt.mode == Mode::Shared && self.may_share() && self.held.len() < 3;
            if !self.held.is_empty() && !may_join {
                return;
            }
            let (_, attempt, mut turn) = self.waiting.remove(0);
            let answer = turn.try_recv().expect("the turn of this waiter");
            self.granted(answer.unwrap(), attempt);
        }
    }

    fn ended(&mut self, nth: usize) {
        self.held.remove(nth);
        self.hand_over();
    }

    fn pass_to(&mut self, now: Instant) {
        while let Some(nth) = self.held.iter().position(|(.., expires)| *expires <= now) {
            self.ended(nth);
        }
        for (_, _, turn) in &mut self.waiting {
            assert!(turn.try_recv().is_err(), "served out of turn");
        }
    }
}

proptest! {
    /// Trap: memory 22
    #[test]
    fn it_behaves_like_a_fair_fenced_lock(steps in prop::collection::vec(step(), 1..120)) {
        let (mut table, mut model, mut now) = (table(), Model::default(), Instant::now());
        let budget = WaiterBudget::new(100);
        let stale = LockId::random();
        for step in steps {
            match step {
                Step::Try(mode) => {
                    let attempt = Arc::new(Attempt { mode, ..attempt(300) });
                    let refusal = model.refuses(mode);
                    match table.try_lock(&attempt, now) {
                        Ok(grant) => {
                            prop_assert_eq!(refusal, None);
                            model.granted(grant, attempt);
                        }
                        Err(BackendError::Locked { .. }) => {
                            prop_assert_eq!(refusal, Some(BackendError::Locked { by: None }));
                        }
                        Err(error) => prop_assert_eq!(Some(error), refusal),
                    }
                }
                Step::Enter(mode) => {
                    let attempt = Arc::new(Attempt { mode, ..attempt(300) });
                    let is_refused = model.refuses(mode).is_some();
                    match table.enter(&attempt, &budget, now) {
                        Ok(Entered::Granted(grant)) => {
                            prop_assert!(!is_refused);
                            model.granted(grant, attempt);
                        }
                        Ok(Entered::Waiting(ticket, turn)) => {
                            prop_assert!(is_refused);
                            model.waiting.push((ticket, attempt, turn));
                        }
                        Err(_) => prop_assert_eq!(model.waiting.len(), 3),
                    }
                }
                Step::Unlock(nth) => if let Some((grant, ..)) = model.held.get(nth) {
                    prop_assert_eq!(table.unlock(&owner(grant), now), Ok(()));
                    model.ended(nth);
                },
                Step::UnlockStale => {
                    let refused = table.unlock(&release(ReleaseOf::Owner(stale.clone())), now);
                    let held = !model.held.is_empty();
                    prop_assert_eq!(refused, Err(BackendError::NotHeld { held }));
                }
                Step::Force => {
                    let forced = table.unlock(&release(ReleaseOf::Anyone), now);
                    prop_assert_eq!(forced.is_ok(), !model.held.is_empty());
                    model.held.clear();
                    model.hand_over();
                }
                Step::Renew(nth) => if let Some((grant, _, expires)) = model.held.get_mut(nth) {
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
                    table.leave(&ResourceId::new("r").unwrap(), ticket, now);
                    model.hand_over();
                },
                Step::Undo(nth) => if let Some((_, attempt, _)) = model.held.get(nth) {
                    let undo = release(ReleaseOf::Attempt(Arc::clone(attempt)));
                    prop_assert_eq!(table.unlock(&undo, now), Ok(()));
                    model.ended(nth);
                },
                Step::Pass(ms) => {
                    now += Duration::from_millis(ms);
                    table.expire(now);
                }
            }
            model.pass_to(now);
            prop_assert_eq!(table.records(), usize::from(!model.held.is_empty()));
        }
    }
}
