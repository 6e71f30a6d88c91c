//! LINEARIZABLE: every operation takes effect at one moment between its call
//! and its answer.

use std::sync::{Mutex, PoisonError};

use anyhow::ensure;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::history::{Event, OPERATIONS_MAX, Operation, is_linearizable};
use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, Reason},
    feature::Feature,
    store::{Answer, Ask, Store},
    world::{World, secs},
};

const LINEARIZABLE: Demand = Demand::Features(&[Feature::Linearizable]);
const CALLERS: usize = 6;
const STEPS: usize = 6;
/// A step is a try, and what its caller does with the grant: at most three
/// operations more.
const STEP_OPERATIONS_MAX: usize = 3;
const RESOURCES: usize = 8;

const _: () = assert!(CALLERS * STEPS * STEP_OPERATIONS_MAX <= OPERATIONS_MAX);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(
        LINEARIZABLE,
        "tries, renewals and unlocks at once are answered as by one lock",
        |world| async move {
            let stores: Vec<_> = (0..CALLERS).map(|_| world.fresh()).collect();
            many_histories(&world, &stores).await
        },
    );
    cases.alone();
    cases.add(
        Demand::TwoProcesses(&[Feature::Linearizable]),
        "tries, renewals and unlocks at both processes are answered as by one lock",
        |world| async move {
            let mut stores = Vec::with_capacity(CALLERS);
            for caller in 0..CALLERS {
                stores.push(if caller % 2 == 0 { world.fresh() } else { world.second()? });
            }
            many_histories(&world, &stores).await
        },
    );
    cases.alone();
}

async fn many_histories(world: &World, stores: &[Store]) -> anyhow::Result<()> {
    let histories = (0..RESOURCES).map(|_| one_history(stores, world.resource()));
    join_all(histories).await.into_iter().collect()
}

async fn one_history(stores: &[Store], resource: String) -> anyhow::Result<()> {
    let history = History { resource, events: Mutex::default(), lock_ids: Mutex::default() };
    let callers = stores.iter().enumerate().map(|(number, store)| history.call(store, number));
    join_all(callers).await.into_iter().collect::<anyhow::Result<()>>()?;
    let mut events = history.events.into_inner().unwrap_or_else(PoisonError::into_inner);
    events.sort_by_key(|event| event.began_at);
    ensure!(is_linearizable(&events), "no order of these explains their answers: {events:#?}");
    Ok(())
}

/// What all callers of one resource did.
struct History {
    resource: String,
    events: Mutex<Vec<Event>>,
    /// The lock IDs so far; an operation's number of a grant is its index.
    lock_ids: Mutex<Vec<String>>,
}

impl History {
    async fn call(&self, store: &Store, caller: usize) -> anyhow::Result<()> {
        for step in 0..STEPS {
            let began_at = Instant::now();
            let tried = store.try_lock(&Ask::of(&self.resource)).await;
            let ended_at = Instant::now();
            let Ok(grant) = tried else {
                tried.refused(Reason::ResourceLocked)?;
                self.note(Operation::Refused, began_at, ended_at);
                self.disturb(store, caller + step).await?;
                continue;
            };
            let number = self.number(grant.lock_id.clone());
            self.note(Operation::Granted(number), began_at, ended_at);
            if (caller + step).is_multiple_of(2) {
                self.renew(store, number, &grant.lock_id).await?;
            }
            self.unlock(store, number, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Names a grant of some other caller that is over, or soon will be.
    async fn disturb(&self, store: &Store, pick: usize) -> anyhow::Result<()> {
        let known = self.lock_ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(number) = pick.checked_rem(known.len()) else { return Ok(()) };
        if pick.is_multiple_of(2) {
            self.renew(store, number, &known[number]).await
        } else {
            self.unlock(store, number, &known[number]).await
        }
    }

    async fn renew(&self, store: &Store, number: usize, lock_id: &str) -> anyhow::Result<()> {
        let began_at = Instant::now();
        let renewed = store.renew(&self.resource, lock_id, secs(60)).await.map(drop);
        self.note_answer(renewed, Operation::Renewed(number), number, began_at)
    }

    async fn unlock(&self, store: &Store, number: usize, lock_id: &str) -> anyhow::Result<()> {
        let began_at = Instant::now();
        let unlocked = store.unlock(&self.resource, lock_id).await;
        self.note_answer(unlocked, Operation::Unlocked(number), number, began_at)
    }

    fn note_answer(
        &self,
        answer: Answer<()>,
        accepted: Operation,
        number: usize,
        began_at: Instant,
    ) -> anyhow::Result<()> {
        let ended_at = Instant::now();
        let operation = match answer {
            Ok(()) => accepted,
            refused => {
                Operation::NotFound(number, refused.refused(Reason::LockNotFound)?.held()?)
            }
        };
        self.note(operation, began_at, ended_at);
        Ok(())
    }

    fn note(&self, operation: Operation, began_at: Instant, ended_at: Instant) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(Event { operation, began_at, ended_at });
    }

    fn number(&self, lock_id: String) -> usize {
        let mut lock_ids = self.lock_ids.lock().unwrap_or_else(PoisonError::into_inner);
        lock_ids.push(lock_id);
        lock_ids.len() - 1
    }
}
