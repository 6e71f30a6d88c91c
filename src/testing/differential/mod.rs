//! Compares a backend with the model: the same sequence of operations must have
//! the same results.

mod compare;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use fastrand::Rng;
use leasehold_lock::{
    Attempt, AttemptId, Backend, BackendError, Feature, Grant, GrantId, Holder, LockId, Mode,
    Release, ReleaseOf, Renewal, RequestId, ResourceId, Ttl,
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::model::Model;

/// Long enough that nothing expires during a run.
const TTL: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(10);

/// The resources. Nothing else is held on the server.
const RESOURCES: [&str; 2] = ["one", "two"];

type Result<T> = std::result::Result<T, BackendError>;

struct Waiting {
    attempt: Arc<Attempt>,
    handle: Arc<dyn Backend>,
    wait: JoinHandle<Result<Grant>>,
}

/// Two handles on one server, and its expected state.
pub struct Differential {
    handles: Vec<Arc<dyn Backend>>,
    rng: Rng,
    model: Model,
    /// Every attempt so far and its handle: only that handle promises that a
    /// clean-up follows all that was sent for the attempt.
    attempts: Vec<(Arc<Attempt>, Arc<dyn Backend>)>,
    /// One waiter per resource, whose turn is certain; and a second one behind it, once
    /// the first is known to have arrived.
    waiting: BTreeMap<String, Vec<Waiting>>,
    /// The backend's tokens by the model's, and the newest of each resource.
    tokens: BTreeMap<u64, u64>,
    newest: BTreeMap<String, (u64, Mode)>,
    log: Vec<String>,
}

impl Differential {
    /// Handles may be several processes of one backend.
    pub fn new(handles: Vec<Arc<dyn Backend>>, seed: u64) -> Self {
        Self {
            handles,
            rng: Rng::with_seed(seed),
            model: Model::default(),
            attempts: Vec::new(),
            waiting: BTreeMap::new(),
            tokens: BTreeMap::new(),
            newest: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Performs `steps` operations and compares each result. Panics at the
    /// first difference, with all operations so far.
    pub async fn run(mut self, steps: u32) {
        for _ in 0..steps {
            match self.rng.u8(..14) {
                0..3 => self.try_lock().await,
                3..5 => self.lock().await,
                5..7 => self.renew().await,
                7..10 => self.unlock().await,
                10 => self.undo().await,
                11..13 => self.look().await,
                _ => self.leave().await,
            }
        }
        let left: Vec<_> = self.waiting.keys().cloned().collect();
        for resource in left {
            while self.waiting.get(&resource).is_some_and(|waiting| !waiting.is_empty()) {
                self.leave_queue(&resource).await;
            }
        }
    }

    fn handle(&mut self) -> Arc<dyn Backend> {
        Arc::clone(&self.handles[self.rng.usize(..self.handles.len())])
    }

    fn attempt(&mut self) -> (Arc<dyn Backend>, Arc<Attempt>) {
        let handle = self.handle();
        let number = self.attempts.len();
        let lock_id_given = self.rng.u8(..4) == 0;
        let lock_id = match lock_id_given {
            true => LockId::new(&format!("own-{}", self.rng.u8(..2))).unwrap(),
            false => LockId::random(),
        };
        let request = if self.rng.bool() { "" } else { ["a", "b"][self.rng.usize(..2)] };
        let shares = handle.features().contains(&Feature::Shared) && self.rng.u8(..3) > 0;
        let attempt = Arc::new(Attempt {
            id: AttemptId::random(),
            resource: self.resource(),
            lock_id,
            lock_id_given,
            request_id: RequestId::new(request).unwrap(),
            published: false,
            mode: if shares { Mode::Shared } else { Mode::Exclusive },
            holder: Holder::new(&format!("holder {number}")).unwrap(),
            ttl: Ttl::new(TTL, TTL).unwrap(),
        });
        self.attempts.push((Arc::clone(&attempt), Arc::clone(&handle)));
        (handle, attempt)
    }

    fn resource(&mut self) -> ResourceId {
        ResourceId::new(RESOURCES[self.rng.usize(..2)]).unwrap()
    }

    async fn try_lock(&mut self) {
        let (handle, attempt) = self.attempt();
        let expected = self.model.try_lock(&attempt, Instant::now());
        let got = handle.try_lock(&attempt, until()).await;
        self.compare_grants("try", &attempt, &got, &expected);
    }

    async fn lock(&mut self) {
        let (handle, mut attempt) = self.attempt();
        let resource = attempt.resource.as_str().to_owned();
        let waiting = self.waiting.get(&resource).map_or(0, Vec::len);
        if waiting > usize::from(self.is_shared(&resource)) {
            return;
        }
        if waiting == 1 {
            self.attempts.pop();
            attempt = Arc::new(Attempt { request_id: None, ..(*attempt).clone() });
            self.attempts.push((Arc::clone(&attempt), Arc::clone(&handle)));
        }
        let expected = self.model.enter(&attempt, Instant::now());
        let (asked, asks) = (Arc::clone(&attempt), Arc::clone(&handle));
        let wait = tokio::spawn(async move { asks.lock(&asked).await });
        match expected {
            Ok(None) => {
                self.log.push(format!("{:?} wait {resource}", attempt.mode));
                if self.is_shared(&resource) && waiting == 0 {
                    self.arrived(&handle, &attempt).await;
                }
                let waiting = Waiting { attempt, handle, wait };
                self.waiting.entry(resource).or_default().push(waiting);
            }
            Ok(Some(grant)) => {
                let got = timeout(SOON, wait).await.expect("at once").unwrap();
                self.compare_grants("lock", &attempt, &got, &Ok(grant));
            }
            Err(refused) => {
                let got = timeout(SOON, wait).await.expect("at once").unwrap();
                self.compare_grants("lock", &attempt, &got, &Err(refused));
            }
        }
    }

    fn is_shared(&self, resource: &str) -> bool {
        self.model.held(resource).iter().any(|held| held.by().mode == Mode::Shared)
    }

    /// Returns once a writer is in the queue behind readers: then a shared try is refused.
    async fn arrived(&self, handle: &Arc<dyn Backend>, writer: &Attempt) {
        let begun = Instant::now();
        loop {
            let probe = Attempt {
                id: AttemptId::random(),
                lock_id: LockId::random(),
                lock_id_given: false,
                request_id: None,
                mode: Mode::Shared,
                ..writer.clone()
            };
            let granted = match handle.try_lock(&probe, until()).await {
                Ok(granted) => granted,
                Err(error) => {
                    let is_locked = matches!(error, BackendError::Locked { .. });
                    assert!(is_locked, "{error:?}\n{:#?}", self.log);
                    return;
                }
            };
            let of = ReleaseOf::Owner(granted.lock_id);
            let release = Release::new(probe.resource, of);
            handle.unlock(&release, until()).await.unwrap();
            assert!(begun.elapsed() < SOON, "the writer never queues\n{:#?}", self.log);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn renew(&mut self) {
        let handle = self.handle();
        let renewal = Renewal {
            resource: self.resource(),
            lock_id: self.some_lock_id(),
            ttl: Ttl::new(TTL, TTL).unwrap(),
        };
        let expected = self.model.renew(&renewal, Instant::now()).map(drop);
        let got = handle.renew(&renewal, until()).await;
        let longer = got.as_ref().is_ok_and(|renewed| renewed.ttl >= TTL);
        assert!(got.is_err() || longer, "{got:?}\n{:#?}", self.log);
        self.compare(&format!("renew {}", renewal.resource), &got.map(drop), &expected);
    }

    async fn unlock(&mut self) {
        let (handle, resource) = (self.handle(), self.resource());
        let of = match self.rng.u8(..10) {
            0 => ReleaseOf::Anyone,
            1..3 if handle.inspect().is_some() => ReleaseOf::Id(self.some_grant_id()),
            8.. if !self.model.held(resource.as_str()).is_empty() => self.some_claim(&resource),
            _ => ReleaseOf::Owner(self.some_lock_id()),
        };
        let release = Release::new(resource, of);
        let expected = self.model.unlock(&release, Instant::now()).map(drop);
        let got = handle.unlock(&release, until()).await;
        self.compare(&format!("unlock {} {:?}", release.resource, release.of), &got, &expected);
        self.handed_over().await;
    }

    /// A grant of the resource, and its last attempt or any other.
    fn some_claim(&mut self, resource: &ResourceId) -> ReleaseOf {
        let held = self.model.held(resource.as_str());
        let held = &held[self.rng.usize(..held.len())];
        let attempt = match self.rng.choice(&self.attempts) {
            Some((attempt, _)) if self.rng.bool() => attempt.id,
            _ => held.last(),
        };
        ReleaseOf::Claim(held.lock_id().clone(), attempt)
    }

    /// Undoes an attempt that is not waiting.
    async fn undo(&mut self) {
        let Some((attempt, handle)) = self.rng.choice(&self.attempts).cloned() else { return };
        if self.waiting.values().flatten().any(|waiting| waiting.attempt.id == attempt.id) {
            return;
        }
        let (resource, of) = (attempt.resource.clone(), ReleaseOf::Attempt(attempt));
        let release = Release::new(resource, of);
        let expected = self.model.unlock(&release, Instant::now());
        let got = handle.unlock(&release, until()).await;
        self.log.push(format!("undo {}: {got:?}", release.resource));
        assert!(got.is_ok() || expected.is_err(), "{got:?}, {expected:?}\n{:#?}", self.log);
        self.handed_over().await;
    }

    async fn leave(&mut self) {
        let resource = self.resource().as_str().to_owned();
        self.leave_queue(&resource).await;
    }

    async fn leave_queue(&mut self, resource: &str) {
        let Some(queue) = self.waiting.get_mut(resource) else { return };
        if queue.is_empty() {
            return;
        }
        let Waiting { attempt, handle, wait } = queue.remove(self.rng.usize(..queue.len()));
        wait.abort();
        let _ = wait.await;
        let of = ReleaseOf::Attempt(Arc::clone(&attempt));
        let release = Release::new(attempt.resource.clone(), of);
        // Whether there was an entry to remove differs between backends.
        let got = handle.unlock(&release, until()).await;
        self.log.push(format!("{:?} leave {resource}: {got:?}", attempt.mode));
        self.model.leave(&attempt, Instant::now());
        self.handed_over().await;
    }

    /// Checks that the backend made the same hand-overs as the model.
    async fn handed_over(&mut self) {
        for (id, expected) in std::mem::take(&mut self.model.handed) {
            let (resource, nth) = self
                .waiting
                .iter()
                .find_map(|(resource, queue)| {
                    let nth = queue.iter().position(|waiting| waiting.attempt.id == id)?;
                    Some((resource.clone(), nth))
                })
                .unwrap();
            let queue = self.waiting.get_mut(&resource).unwrap();
            let Waiting { attempt, wait, .. } = queue.remove(nth);
            let got = timeout(SOON, wait).await;
            let got = got.unwrap_or_else(|_| panic!("{resource} waits on\n{:#?}", self.log));
            self.compare_grants("turn", &attempt, &got.unwrap(), &expected);
        }
    }

    fn some_lock_id(&mut self) -> LockId {
        let live = RESOURCES.iter().flat_map(|r| self.model.held(r));
        let live: Vec<_> = live.map(|held| held.lock_id().clone()).collect();
        let known = self.rng.choice(&self.attempts).map(|(attempt, _)| attempt.lock_id.clone());
        match self.rng.u8(..4) {
            0 => LockId::new("nobody's").unwrap(),
            1 => known.unwrap_or_else(LockId::random),
            _ => self.rng.choice(live).unwrap_or_else(LockId::random),
        }
    }

    fn some_grant_id(&mut self) -> GrantId {
        let live = RESOURCES.iter().flat_map(|r| self.model.held(r));
        let live: Vec<GrantId> = live.map(|held| held.by().id.into()).collect();
        let known = self.rng.choice(&self.attempts).map(|(attempt, _)| attempt.id);
        let known = known.unwrap_or_else(AttemptId::random).into();
        if self.rng.bool() { known } else { self.rng.choice(live).unwrap_or(known) }
    }
}

fn until() -> Instant {
    Instant::now() + Duration::from_secs(5)
}
