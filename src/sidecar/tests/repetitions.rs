//! Random repetitions of one request: they are answered, by a stream or without, or leave, while
//! earlier holds end. Each schedule is repeated from its seed.

use fastrand::Rng;
use leasehold_held::HeldGuard;
use leasehold_lock::{LockId, RequestId};

use super::*;
use crate::api::alpha2::UndeliveredGrant;

const SEEDS: u64 = 300;
const STEPS: usize = 30;

/// Who has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Received,
    /// The stream with this number.
    Stream(usize),
}

struct Run {
    rng: Rng,
    setup: Setup,
    locks: Locks,
    store: Store,
    in_flight: Vec<UndeliveredGrant>,
    streams: Vec<Option<HeldGuard>>,
    holder: Holder,
    /// When the latest request that was answered was sent.
    latest: LockInstant,
    log: Vec<String>,
}

impl Run {
    async fn begin(seed: u64) -> (Self, LockId) {
        let (setup, stores) = (setup(), Stores::default());
        let (store, _) = load(&stores);
        let locks = Locks::new(stores, setup.engine.clone(), app());
        let latest = LockInstant::now();
        let (in_flight, streams, log) = (Vec::new(), Vec::new(), vec![format!("seed {seed}")]);
        let (rng, holder) = (Rng::with_seed(seed), Holder::Nobody);
        let mut run =
            Self { rng, setup, locks, store, in_flight, streams, holder, latest, log };
        run.ask().await;
        let lock_id = run.in_flight[0].granted.lock_id.clone();
        run.answer(true);
        (run, lock_id)
    }

    async fn ask(&mut self) {
        settle().await;
        let call = LockCall { request_id: RequestId::new("secret").unwrap(), ..call() };
        self.in_flight.push(self.locks.acquire(call).await.unwrap());
    }

    fn take_one(&mut self) -> UndeliveredGrant {
        let nth = self.rng.usize(..self.in_flight.len());
        self.in_flight.remove(nth)
    }

    fn answer(&mut self, by_stream: bool) {
        let grant = self.take_one();
        let since = grant.granted.since;
        let is_latest = self.holder == Holder::Nobody || since >= self.latest;
        let holder = if by_stream {
            let (guard, _end) = grant.hold_for_stream().unwrap();
            self.streams.push(guard);
            Holder::Stream(self.streams.len() - 1)
        } else {
            grant.deliver().accept();
            Holder::Received
        };
        if is_latest {
            (self.holder, self.latest) = (holder, since);
        }
    }

    /// Returns what was done.
    async fn step(&mut self, lock_id: &LockId) -> String {
        match self.rng.u8(..12) {
            0..4 => {
                self.ask().await;
                "ask".into()
            }
            4..7 if !self.in_flight.is_empty() => {
                drop(self.take_one());
                "leave".into()
            }
            7..9 if !self.in_flight.is_empty() => {
                let by_stream = self.rng.bool();
                self.answer(by_stream);
                format!("answer, by a stream: {by_stream}")
            }
            9..11 if !self.streams.is_empty() => {
                let nth = self.rng.usize(..self.streams.len());
                self.streams[nth] = None;
                if self.holder == Holder::Stream(nth) {
                    self.holder = Holder::Nobody;
                }
                format!("stream {nth} ends")
            }
            11 if self.holder != Holder::Nobody => {
                let resource = self.locks.resource("s", &"r".parse().unwrap()).unwrap();
                assert!(self.setup.engine.give_up(&resource, lock_id), "{:#?}", self.log);
                self.holder = Holder::Nobody;
                "report".into()
            }
            _ => "nothing".into(),
        }
    }
}

/// Trap: sidecar 22
#[tokio::test(start_paused = true)]
async fn a_lock_is_held_for_as_long_as_a_request_has_it_or_may_be_answered_with_it() {
    for seed in 0..SEEDS {
        let (mut run, lock_id) = Run::begin(seed).await;
        let request = AcquireRequest::new("lock||r".parse().unwrap());
        for _ in 0..STEPS {
            let what = run.step(&lock_id).await;
            run.log.push(format!("{what}: {:?}, {} asking", run.holder, run.in_flight.len()));
            settle().await;
            let is_over = run.holder == Holder::Nobody && run.in_flight.is_empty();
            let is_free = run.store.try_lock(request.clone()).await.is_ok();
            assert_eq!(is_free, is_over, "{:#?}", run.log);
            if is_over {
                assert_eq!(run.setup.engine.held(), 0, "{:#?}", run.log);
                break;
            }
        }
    }
}
