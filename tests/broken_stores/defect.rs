//! Stores broken on purpose: one wrapper around memory, one defect each.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, AttemptId, Backend, BackendError, Feature, FencingToken, Grant, GrantId, LockId,
    Mode, Release, ReleaseOf, Renewal, Renewed, ResourceId, Ttl,
    inspect::{GrantView, Inspect},
};
use leasehold_memory::Memory;
use tokio::time::{Instant, sleep};

use crate::neighbours::{Neighbours, merged};

/// The defect of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// No defect: the wrapper alone must pass.
    None,
    /// Any lock ID unlocks (trap 22).
    WrongOwnerUnlocks,
    /// Every grant of a resource has the same token (trap 26).
    TokenRepeats,
    /// A renewal makes a new grant (trap 13).
    RenewalRecreates,
    /// A renewal is answered without restarting the TTL.
    RenewalIsIgnored,
    /// The lock lasts half of what is reported (trap 30).
    TtlIsCutShort,
    /// The timer of a grant continues after its unlock, and ends the next grant.
    TimerOutlivesUnlock,
    /// An unlock is answered without an effect.
    UnlockIsIgnored,
    /// A force is answered without an effect.
    ForceIsIgnored,
    /// The last waiter is served first.
    LastComeFirstServed,
    /// Every second waiter is never served.
    AWaiterIsSkipped,
    /// A failed try stays in the queue (traps 2 and 3).
    FailedTryLeavesLitter,
    /// A cancelled wait continues, and takes the lock for nobody (trap 10).
    CancelLeaks,
    /// A try overtakes waiters.
    TryOvertakesWaiters,
    /// A repeated request is refused by its own grant (trap 23).
    ReplayIsRefused,
    /// LOCK_NOT_FOUND instead of RESOURCE_LOCKED.
    WrongErrorCode,
    /// `held` is inverted.
    WrongHeld,
    /// All lock IDs are the same.
    LockIdRepeats,
    /// Holding `x/a` refuses the free `x`: a holder is looked for by a prefix.
    NameIsTakenByOneBelow,
    /// Holding `x` refuses the free `x/a`.
    NameIsTakenByOneAbove,
    /// `x//a` is `x/a`: names go through a path library.
    SlashesAreMerged,
    /// A try is refused because of another that is itself refused (trap 2).
    TriesRefuseEachOther,
    /// A renewal of one shared grant renews all.
    AReaderRenewsAll,
    /// Readers that come later are served before a writer that waits.
    ReadersStarveAWriter,
    /// Only the first of several waiting readers is granted.
    ReadersEnterOneByOne,
    /// A shared grant is made though an exclusive one is held.
    AReaderBesideAWriter,
    /// The holder of a shared grant gets an exclusive one beside it.
    AnUpgradeIsLetIn,
    /// A lock ID is shown to everybody.
    GetLockShowsALockId,
    /// A list skips an item between pages.
    AListSkipsBetweenPages,
    /// Every grant is shown with the ID of the resource's first one, which ends any grant.
    ASuccessorIsEnded,
    /// A refused try is shown the ID of another grant.
    ARefusalShowsAnotherGrant,
    /// A watch misses changes, and does not restart.
    AWatchMissesChanges,
}

/// A grant and its resource.
pub struct Granted {
    pub resource: ResourceId,
    pub lock_id: LockId,
    pub id: Option<GrantId>,
}

/// Memory with a defect.
pub struct Broken {
    pub memory: Arc<Memory>,
    pub defect: Defect,
    turns: AtomicU64,
    neighbours: Neighbours,
    /// The shared grants so far.
    readers: Mutex<Vec<(ResourceId, LockId)>>,
    /// All grants so far.
    pub granted: Mutex<Vec<Granted>>,
}

impl Broken {
    pub fn new(memory: Memory, defect: Defect) -> Self {
        let neighbours = Neighbours::default();
        let (turns, readers) = (AtomicU64::new(0), Mutex::default());
        let granted = Mutex::default();
        Self { memory: Arc::new(memory), defect, turns, neighbours, readers, granted }
    }

    fn spoil(&self, mut grant: Grant, attempt: &Attempt) -> Grant {
        let resource = attempt.resource.clone();
        let granted = Granted { resource, lock_id: grant.lock_id.clone(), id: grant.id };
        self.granted.lock().unwrap().push(granted);
        if attempt.mode == Mode::Shared {
            let reader = (attempt.resource.clone(), grant.lock_id.clone());
            self.readers.lock().unwrap().push(reader);
        }
        match self.defect {
            Defect::TimerOutlivesUnlock => {
                let (memory, ttl) = (Arc::clone(&self.memory), grant.ttl);
                let (resource, of) = (attempt.resource.clone(), ReleaseOf::Anyone);
                tokio::spawn(async move {
                    sleep(ttl).await;
                    let release = Release::new(resource, of);
                    let _ = memory.unlock(&release, Instant::now()).await;
                });
            }
            Defect::TokenRepeats => grant.token = FencingToken::new(7),
            Defect::TtlIsCutShort => grant.ttl = attempt.ttl.duration() * 2,
            _ => {}
        }
        grant
    }

    /// Whether the defect refuses a try without asking memory.
    fn is_refused(&self, resource: &ResourceId) -> bool {
        match self.defect {
            Defect::NameIsTakenByOneBelow => self.neighbours.one_below_is_held(resource),
            Defect::NameIsTakenByOneAbove => self.neighbours.one_above_is_held(resource),
            Defect::TriesRefuseEachOther => self.neighbours.is_in_the_way(resource),
            _ => false,
        }
    }

    /// Whether the defect grants an attempt that memory refuses.
    fn is_let_in(&self, attempt: &Attempt) -> bool {
        match self.defect {
            Defect::AReaderBesideAWriter => attempt.mode == Mode::Shared,
            Defect::AnUpgradeIsLetIn if attempt.mode == Mode::Exclusive => {
                let reader = (attempt.resource.clone(), attempt.lock_id.clone());
                self.readers.lock().unwrap().contains(&reader)
            }
            _ => false,
        }
    }

    fn spoiled_attempt(&self, attempt: &Attempt) -> Attempt {
        let mut attempt = attempt.clone();
        match self.defect {
            Defect::TtlIsCutShort => attempt.ttl = half(attempt.ttl),
            Defect::ReplayIsRefused => attempt.request_id = None,
            Defect::SlashesAreMerged => attempt.resource = merged(&attempt.resource),
            Defect::LockIdRepeats if !attempt.lock_id_given => {
                attempt.lock_id = LockId::new("00000000-0000-4000-8000-000000000000").unwrap();
            }
            _ => {}
        }
        attempt
    }

    /// Renews every shared grant of the resource.
    async fn renew_readers(&self, renewal: &Renewal, until: Instant) {
        let readers = self.readers.lock().unwrap().clone();
        for (resource, lock_id) in readers {
            if resource == renewal.resource {
                let _ = self.memory.renew(&Renewal { lock_id, ..renewal.clone() }, until).await;
            }
        }
    }

    /// Waits by polling, which has no particular order.
    async fn poll(&self, attempt: &Attempt, pause: Duration) -> Result<Grant, BackendError> {
        loop {
            match self.memory.try_lock(attempt, Instant::now()).await {
                Err(BackendError::Locked { .. }) => sleep(pause).await,
                result => return result,
            }
        }
    }
}

fn half(ttl: Ttl) -> Ttl {
    Ttl::new(ttl.duration() / 2, Duration::MAX).unwrap()
}

#[async_trait]
impl Backend for Broken {
    fn features(&self) -> &[Feature] {
        self.memory.features()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let attempt = self.spoiled_attempt(attempt);
        if self.is_refused(&attempt.resource) {
            return Err(BackendError::Locked { by: None });
        }
        let result = self.memory.try_lock(&attempt, until).await;
        if result.is_ok() {
            self.neighbours.granted(&attempt.resource);
        }
        match (self.defect, result) {
            (Defect::TriesRefuseEachOther, Err(error @ BackendError::Locked { .. })) => {
                self.neighbours.leave(&attempt.resource).await;
                Err(error)
            }
            (Defect::FailedTryLeavesLitter, Err(error @ BackendError::Locked { .. })) => {
                let memory = Arc::clone(&self.memory);
                let litter = Attempt { id: AttemptId::random(), ..attempt };
                tokio::spawn(async move { memory.lock(&litter).await });
                Err(error)
            }
            (_, Err(BackendError::Locked { .. })) if self.is_let_in(&attempt) => {
                let elsewhere = format!("beside {}", attempt.resource);
                let resource = ResourceId::new(&elsewhere).unwrap();
                self.memory.try_lock(&Attempt { resource, ..attempt }, until).await
            }
            (Defect::ARefusalShowsAnotherGrant, Err(BackendError::Locked { by: Some(by) })) => {
                let by = GrantView { id: Some(attempt.id.into()), ..by };
                Err(BackendError::Locked { by: Some(by) })
            }
            (Defect::WrongErrorCode, Err(BackendError::Locked { .. })) => {
                Err(BackendError::NotHeld { held: true })
            }
            (_, result) => result.map(|grant| self.spoil(grant, &attempt)),
        }
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let attempt = self.spoiled_attempt(attempt);
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let result = match self.defect {
            Defect::LastComeFirstServed => {
                let pause = Duration::from_millis(100 / (turn % 100 + 1).max(1));
                self.poll(&attempt, pause.max(Duration::from_millis(1))).await
            }
            Defect::TryOvertakesWaiters => self.poll(&attempt, Duration::from_millis(20)).await,
            Defect::ReadersStarveAWriter if attempt.mode == Mode::Exclusive => {
                self.poll(&attempt, Duration::from_millis(20)).await
            }
            Defect::ReadersEnterOneByOne => {
                let alone = Attempt { mode: Mode::Exclusive, ..attempt.clone() };
                self.memory.lock(&alone).await
            }
            Defect::AWaiterIsSkipped if turn % 2 == 1 => std::future::pending().await,
            Defect::CancelLeaks => {
                let memory = Arc::clone(&self.memory);
                let attempt = attempt.clone();
                tokio::spawn(async move { memory.lock(&attempt).await }).await.unwrap_or_else(
                    |error| Err(BackendError::Unknown(error.to_string().into())),
                )
            }
            _ => self.memory.lock(&attempt).await,
        };
        result.map(|grant| self.spoil(grant, &attempt))
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        if self.defect == Defect::RenewalIsIgnored {
            let (ttl, since) = (renewal.ttl.duration(), leasehold_lock::Instant::now());
            return Ok(Renewed { id: None, ttl, since });
        }
        if self.defect == Defect::AReaderRenewsAll {
            self.renew_readers(renewal, until).await;
        }
        match self.memory.renew(renewal, until).await {
            Err(BackendError::NotHeld { held: false })
                if self.defect == Defect::RenewalRecreates =>
            {
                let again = recreated(&renewal.resource, &renewal.lock_id, renewal.ttl);
                let grant = self.memory.try_lock(&again, until).await?;
                Ok(Renewed { id: grant.id, ttl: grant.ttl, since: grant.since })
            }
            Err(BackendError::NotHeld { held }) if self.defect == Defect::WrongHeld => {
                Err(BackendError::NotHeld { held: !held })
            }
            result => result,
        }
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        let ignored = match release.of {
            ReleaseOf::Owner(_) => self.defect == Defect::UnlockIsIgnored,
            ReleaseOf::Anyone => self.defect == Defect::ForceIsIgnored,
            ReleaseOf::Attempt(_) => self.defect == Defect::CancelLeaks,
            ReleaseOf::Id(_) | ReleaseOf::Claim(..) | ReleaseOf::Token(..) => false,
        };
        if ignored {
            return Ok(());
        }
        let is_any = match release.of {
            ReleaseOf::Owner(_) => self.defect == Defect::WrongOwnerUnlocks,
            ReleaseOf::Id(_) => self.defect == Defect::ASuccessorIsEnded,
            _ => false,
        };
        if is_any {
            let anyone = Release::new(release.resource.clone(), ReleaseOf::Anyone);
            return self.memory.unlock(&anyone, until).await;
        }
        self.neighbours.unlocked(&release.resource);
        if self.defect == Defect::SlashesAreMerged {
            let (resource, of) = (merged(&release.resource), release.of.clone());
            let release = Release::new(resource, of);
            return self.memory.unlock(&release, until).await;
        }
        match self.memory.unlock(release, until).await {
            Err(BackendError::NotHeld { held }) if self.defect == Defect::WrongHeld => {
                Err(BackendError::NotHeld { held: !held })
            }
            result => result,
        }
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.memory.ping(until).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}

fn recreated(resource: &ResourceId, lock_id: &LockId, ttl: Ttl) -> Attempt {
    Attempt {
        lock_id: lock_id.clone(),
        lock_id_given: true,
        ..Attempt::new(resource.clone(), ttl)
    }
}
