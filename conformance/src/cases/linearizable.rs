//! LINEARIZABLE: every operation takes effect at one moment between its call
//! and its answer.

use anyhow::bail;
use futures_util::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::history::{Event, OPERATIONS_MAX, Operation, contradiction};
use crate::{
    answer::Answer,
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    reason::Reason,
    store::Store,
    words::Accepted,
    world::{World, secs},
};

const LINEARIZABLE: Demand = Demand::Features(&[Feature::Linearizable]);
const CALLERS: usize = 6;
const STEPS: usize = 6;
/// How many operations a step has at most: a try, a renewal and an unlock.
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
    let callers = stores.iter().enumerate().map(|(number, store)| {
        let caller = Caller { history: &history, store, number };
        async move { caller.run().await }
    });
    join_all(callers).await.into_iter().collect::<anyhow::Result<()>>()?;
    let events = history.events.into_inner();
    match contradiction(events) {
        Some(contradiction) => bail!("on the resource {}: {contradiction}", history.resource),
        None => Ok(()),
    }
}

/// What all callers of one resource did.
struct History {
    resource: String,
    events: Mutex<Vec<Event>>,
    /// The lock IDs so far. The number of a grant in an operation is an index into it.
    lock_ids: Mutex<Vec<String>>,
}

/// One of the callers that use the resource.
struct Caller<'a> {
    history: &'a History,
    store: &'a Store,
    number: usize,
}

impl Caller<'_> {
    async fn run(&self) -> anyhow::Result<()> {
        for step in 0..STEPS {
            let began_at = Instant::now();
            let tried = self.store.try_lock(&Ask::of(&self.history.resource)).await;
            let ended_at = Instant::now();
            let Ok(grant) = tried else {
                tried.refused(Reason::ResourceLocked)?;
                self.note(Operation::Refused, began_at, ended_at);
                self.disturb(self.number + step).await?;
                continue;
            };
            let number = self.number_of(grant.lock_id.clone());
            self.note(Operation::Granted(number), began_at, ended_at);
            if (self.number + step).is_multiple_of(2) {
                self.renew(number, &grant.lock_id).await?;
            }
            self.unlock(number, &grant.lock_id).await?;
        }
        Ok(())
    }

    /// Renews or unlocks a grant of some caller, which has ended or is about to.
    async fn disturb(&self, pick: usize) -> anyhow::Result<()> {
        let known = lock(&self.history.lock_ids).clone();
        let Some(number) = pick.checked_rem(known.len()) else { return Ok(()) };
        if pick.is_multiple_of(2) {
            self.renew(number, &known[number]).await
        } else {
            self.unlock(number, &known[number]).await
        }
    }

    async fn renew(&self, grant: usize, lock_id: &str) -> anyhow::Result<()> {
        let began_at = Instant::now();
        let renewed = self.store.renew(&self.history.resource, lock_id, secs(60)).await;
        let ended_at = Instant::now();
        let operation = match renewed {
            Ok(_) => Operation::Renewed(grant),
            refused => Operation::NotRenewed(grant, held(refused)?),
        };
        self.note(operation, began_at, ended_at);
        Ok(())
    }

    async fn unlock(&self, grant: usize, lock_id: &str) -> anyhow::Result<()> {
        let began_at = Instant::now();
        let unlocked = self.store.unlock(&self.history.resource, lock_id).await;
        let ended_at = Instant::now();
        let operation = match unlocked {
            Ok(()) => Operation::Unlocked(grant),
            refused => Operation::NotUnlocked(grant, held(refused)?),
        };
        self.note(operation, began_at, ended_at);
        Ok(())
    }

    fn note(&self, operation: Operation, began_at: Instant, ended_at: Instant) {
        let event = Event { caller: self.number, operation, began_at, ended_at };
        lock(&self.history.events).push(event);
    }

    fn number_of(&self, lock_id: String) -> usize {
        let mut lock_ids = lock(&self.history.lock_ids);
        lock_ids.push(lock_id);
        lock_ids.len() - 1
    }
}

fn held<T: Accepted>(refused: Answer<T>) -> anyhow::Result<Option<bool>> {
    refused.refused(Reason::LockNotFound)?.held()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
