//! Carries out verbs on a store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use leasehold_lock::{
    AcquireRequest, Feature, Holder, LockError, LockId, Receipt, RenewRequest, RequestId,
    ResourceId, Store, UnlockRequest,
    inspect::{Inspected, PageRequest},
};
use leasehold_net::inspection::{ForcedBy, force_unlock};
use sha1_smol::Sha1;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::verb::{Outcome, Pair, Verb};

/// Finds the store once it is initialised.
pub type FindStore =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Store, LockError>> + Send + Sync>;

/// How many calls of all connections are under way at a time; more are refused.
const CALLS_MAX: usize = 16_384;
/// How often a call of several steps is tried while its lock changes between them.
const STEPS_MAX: usize = 3;
/// How many grants of a shared lock are read. etcd reports the remaining TTL of no more at
/// once.
const GRANTS_READ_MAX: usize = 8;

/// The locks of one store.
#[derive(Clone)]
pub(super) struct Locks {
    /// The name of the store, for the log.
    store_name: Arc<str>,
    find: FindStore,
    /// What `GET` returns for a lock that leasehold did not make, which has no ID. It is
    /// random, so it cannot be a client's value.
    foreign_value: Arc<str>,
    /// Cancelled: no more locks are taken.
    draining: CancellationToken,
    /// Limits the calls of all connections that are under way.
    calls: Arc<Semaphore>,
    /// A limit of its own for calls that keep or end a lock, so that other calls cannot crowd
    /// them out.
    calls_of_holders: Arc<Semaphore>,
    /// How many calls have begun that may keep or end a lock.
    calls_of_holders_begun: Arc<AtomicU64>,
}

/// An outcome, and the receipt of a lock that was acquired.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) receipt: Option<Receipt>,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, receipt: None }
    }
}

impl From<Receipt> for Done {
    fn from(receipt: Receipt) -> Self {
        Self { outcome: Outcome::Done, receipt: Some(receipt) }
    }
}

impl Locks {
    /// The locks of the store of this name, which `find` finds.
    pub(super) fn new(store_name: &str, find: FindStore) -> Self {
        Self {
            store_name: store_name.into(),
            find,
            foreign_value: Uuid::new_v4().as_simple().to_string().into(),
            draining: CancellationToken::new(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            calls_of_holders: Arc::new(Semaphore::new(CALLS_MAX)),
            calls_of_holders_begun: Arc::default(),
        }
    }

    /// From now on, acquisitions are refused.
    pub(super) fn drain(&self) {
        self.draining.cancel();
    }

    /// How many calls have begun that may keep or end a lock.
    pub(super) fn calls_of_holders_begun(&self) -> u64 {
        self.calls_of_holders_begun.load(Ordering::Relaxed)
    }

    /// Carries out a verb. If this is dropped, an acquired lock is released, and a release
    /// that has begun is completed.
    pub(super) async fn carry_out(
        &self,
        verb: Verb,
        holder: Option<&Holder>,
    ) -> Result<Done, LockError> {
        if verb.is_of_a_holder() {
            self.calls_of_holders_begun.fetch_add(1, Ordering::Relaxed);
        }
        let places = match verb {
            Verb::Renew(..) | Verb::Prolong(..) | Verb::Release(..) => &self.calls_of_holders,
            _ => &self.calls,
        };
        let _place = places.try_acquire().map_err(|_| LockError::Overloaded)?;
        let store = (self.find)().await?;
        Ok(match verb {
            Verb::Acquire(pair, ttl) => self.try_lock(&store, pair, ttl, holder, None).await?,
            Verb::Renew(pair, ttl) => renew(&store, pair, ttl).await?.into(),
            Verb::Prolong(pair, more) => {
                let found = look(&store, &pair.key).await?;
                let left = remaining(&found)?.unwrap_or_default() + found.remaining_short_max;
                renew(&store, pair, left + more).await?.into()
            }
            Verb::RenewOrAcquire(pair, ttl) => {
                self.renew_or_acquire(&store, pair, ttl, holder).await?
            }
            Verb::Release(pair) => release(&store, pair).await?.into(),
            Verb::RemainingOf(pair) => {
                let found = look(&store, &pair.key).await?;
                if found.published.as_ref() == Some(&pair.value) {
                    Outcome::Remaining(remaining(&found)?).into()
                } else {
                    not_found(found.lock.grants_total > 0).into()
                }
            }
            Verb::Mismatch(key) => {
                not_found(look(&store, &key).await?.lock.grants_total > 0).into()
            }
            Verb::Delete(keys) => {
                let deleting = keys.into_iter().map(|key| self.delete(&store, key));
                count(join_all(deleting).await)?.into()
            }
            Verb::Get(key) => self.value(look(&store, &key).await?).into(),
            Verb::Remaining(key) => {
                let found = look(&store, &key).await?;
                if found.lock.grants_total == 0 {
                    Outcome::NotHeld.into()
                } else {
                    Outcome::Remaining(remaining(&found)?).into()
                }
            }
            Verb::Count(keys) => {
                let looks = keys
                    .iter()
                    .map(|key| async { Ok(look(&store, key).await?.lock.grants_total > 0) });
                count(join_all(looks).await)?.into()
            }
        })
    }

    /// Ends the lock of any holder, with a line in the log.
    async fn delete(&self, store: &Store, key: ResourceId) -> Result<bool, LockError> {
        let by = ForcedBy {
            store_name: self.store_name.to_string(),
            reason: "DEL through the Redis front".into(),
            ..ForcedBy::default()
        };
        let (forced, request) = (store.clone(), UnlockRequest::force(key.clone()));
        let unlock = move |until| async move { forced.unlock_by(request, until).await };
        match force_unlock(store.clone(), key, None, by, unlock).await {
            Ok(()) => Ok(true),
            Err(LockError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn try_lock(
        &self,
        store: &Store,
        pair: Pair,
        ttl: Duration,
        holder: Option<&Holder>,
        request_id: Option<RequestId>,
    ) -> Result<Done, LockError> {
        if self.draining.is_cancelled() {
            return Err(LockError::ShuttingDown);
        }
        let request = AcquireRequest {
            ttl: Some(ttl),
            lock_id: Some(pair.value),
            request_id,
            published: true,
            holder: holder.cloned(),
            ..AcquireRequest::new(pair.key)
        };
        match store.try_lock(request).await {
            Ok(granted) => Ok(granted.receipt.into()),
            Err(LockError::Locked { .. }) => Ok(Outcome::HeldByAnother.into()),
            Err(error) => Err(error),
        }
    }

    /// A retry may find the lock of an earlier try that is being released because its client
    /// has gone. A renewal would find that lock but not keep it. So the lock is acquired
    /// first, with a request ID that all tries of the value share: that claims it.
    async fn renew_or_acquire(
        &self,
        store: &Store,
        pair: Pair,
        ttl: Duration,
        holder: Option<&Holder>,
    ) -> Result<Done, LockError> {
        let request_id = request_id(store, &pair.value);
        let mut may_be_held = self.draining.is_cancelled() || request_id.is_none();
        for _ in 0..STEPS_MAX {
            if may_be_held {
                let renewed = renew(store, pair.clone(), ttl).await?;
                if renewed != Outcome::NotHeld {
                    return Ok(renewed.into());
                }
            }
            let request_id = request_id.clone();
            let done = self.try_lock(store, pair.clone(), ttl, holder, request_id).await?;
            if done.outcome == Outcome::Done {
                return Ok(done);
            }
            may_be_held = true;
        }
        Ok(Outcome::HeldByAnother.into())
    }

    /// The value of a lock that was acquired through a front, as Redis would return it; for any
    /// other lock, its public ID, which is no client's value.
    fn value(&self, found: Inspected) -> Outcome {
        if let Some(value) = found.published {
            return Outcome::Value(value.as_str().to_owned());
        }
        match found.lock.grants.first() {
            None => Outcome::NotHeld,
            Some(grant) => Outcome::Value(
                grant.id.map_or_else(|| self.foreign_value.to_string(), |id| id.to_string()),
            ),
        }
    }
}

/// The ID of every request with this lock ID that may be repeated at any time: a repetition finds
/// the grant that the lock ID has. `None` if the store has no repeated requests.
fn request_id(store: &Store, lock_id: &LockId) -> Option<RequestId> {
    let can_replay = store.features().contains(&Feature::Replay);
    let digest = can_replay.then(|| Sha1::from(lock_id.as_str()).digest().to_string())?;
    RequestId::new(&digest).ok().flatten()
}

async fn renew(store: &Store, pair: Pair, ttl: Duration) -> Result<Outcome, LockError> {
    let Pair { key: resource, value: lock_id } = pair;
    outcome(store.renew(RenewRequest { resource, lock_id, ttl: Some(ttl) }).await)
}

async fn release(store: &Store, pair: Pair) -> Result<Outcome, LockError> {
    outcome(store.unlock(UnlockRequest::owner(pair.key, pair.value)).await)
}

fn outcome<T>(result: Result<T, LockError>) -> Result<Outcome, LockError> {
    match result {
        Ok(_) => Ok(Outcome::Done),
        Err(LockError::NotFound { held }) => Ok(not_found(held)),
        Err(error) => Err(error),
    }
}

fn not_found(held: bool) -> Outcome {
    if held { Outcome::HeldByAnother } else { Outcome::NotHeld }
}

/// How many keys were ended or are held, if all were asked.
fn count(keys: Vec<Result<bool, LockError>>) -> Result<Outcome, LockError> {
    let mut counted = 0;
    for key in keys {
        counted += usize::from(key?);
    }
    Ok(Outcome::Count(counted))
}

async fn look(store: &Store, key: &ResourceId) -> Result<Inspected, LockError> {
    store.get(key, &PageRequest::first(GRANTS_READ_MAX)).await
}

/// How long the resource is still locked if nobody renews it. `None`: a lock that leasehold did
/// not make has no end.
fn remaining(found: &Inspected) -> Result<Option<Duration>, LockError> {
    let mut longest = Some(Duration::ZERO);
    for grant in &found.lock.grants {
        if grant.remaining.is_none() && !grant.foreign {
            let why = "how long the lock lasts could not be read";
            return Err(LockError::StoreUnavailable(why.into()));
        }
        longest = longest.zip(grant.remaining).map(|(longest, left)| longest.max(left));
    }
    Ok(longest)
}
