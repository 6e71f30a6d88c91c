//! The state that the verbs share.

use std::sync::Arc;

use leasehold_lock::{BackendError, Clock, LockId, ResourceId, Settings, WaiterBudget};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    background::Background,
    client::{connection::Connection, reads::Reads},
    commit::committer::Committer,
    config::Config,
    contention::Contention,
    flights::Flights,
    key_cache::KeyCache,
    keys::Keys,
    lease::{
        grants::Grants, keeper::Keeper, keyed_mutex::KeyedMutex, leases::Leases, taken::Taken,
    },
    queue::{
        queues::Queues,
        session::{Session, Sessions},
    },
};

/// How many grants may be moved at the same time after an election: fewer than a sidecar's
/// renewals in flight, so that other renewals are answered meanwhile. Each needs a lease, few
/// of which are granted at once, and acquisitions need some too.
const MOVING_MAX: usize = 128;
/// The error of a call that waited too long for another call about the same grant.
pub(super) const BUSY: &str = "an earlier call for this grant has not been answered yet";

/// The state that the verbs share.
pub(super) struct Core {
    pub(super) keys: Keys,
    pub(super) connection: Arc<Connection>,
    pub(super) committer: Arc<Committer>,
    pub(super) reads: Arc<Reads>,
    /// The reads of inspection. The verbs' reads need not wait for them, and each is alone in
    /// its transaction, because it may return many values.
    pub(super) inspection_reads: Arc<Reads>,
    pub(super) key_cache: KeyCache,
    /// The wall clock, which only tells people when something began.
    clock: Clock,
    pub(super) keeper: Keeper,
    pub(super) leases: Arc<Leases>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) queues: Arc<Queues>,
    pub(super) grants: Grants,
    /// Locked by whatever moves a grant to another lease.
    pub(super) moved: KeyedMutex<(ResourceId, LockId)>,
    /// Limits the moves to other leases after an election.
    pub(super) moving: Semaphore,
    pub(super) contention: Contention,
    pub(super) flights: Flights,
    pub(super) waiters: WaiterBudget,
    pub(super) settings: Settings,
    pub(super) background: Background,
}

/// A write of an attempt that may still take effect.
#[derive(Debug)]
pub(super) enum Leftover {
    /// A write under this lease.
    Lease(Taken),
    /// A write of this waiter's key, under this session.
    Entry(Arc<Session>, String),
    /// This waiter's key, which is known to have been put.
    PutEntry(String),
}

/// How an attempt ended without a grant.
#[derive(Debug)]
pub(super) struct Failed {
    /// The caller's error.
    pub(super) error: BackendError,
    /// What must be cleaned up before the attempt has ended.
    pub(super) leftovers: Vec<Leftover>,
}

impl From<BackendError> for Failed {
    fn from(error: BackendError) -> Self {
        Self { error, leftovers: Vec::new() }
    }
}

impl Core {
    /// Does not connect yet.
    pub(super) fn new(config: Config, settings: Settings, clock: Clock) -> Self {
        let keys = Keys::new(&config.key_prefix);
        let background = Background::default();
        let txn_ops_max = config.txn_ops_max;
        let connection = Arc::new(Connection::new(config, &keys));
        let committer = Committer::new(Arc::clone(&connection), txn_ops_max, &background);
        let keeper = Keeper::start(&connection, &background);
        let leases = Leases::start(Arc::clone(&connection), keeper.clone(), &background);
        let sessions = Sessions::start(
            keys.clone(),
            Arc::clone(&committer),
            Arc::clone(&leases),
            Arc::clone(&connection),
            &background,
        );
        let queues = Queues::new(
            keys.clone(),
            Arc::clone(&connection),
            Arc::clone(&sessions),
            txn_ops_max,
            settings.clone(),
            &background,
        );
        Self {
            keys,
            reads: Reads::new(Arc::clone(&connection), txn_ops_max, &background),
            inspection_reads: Reads::new(Arc::clone(&connection), 1, &background),
            key_cache: KeyCache::default(),
            clock,
            connection,
            committer,
            keeper,
            leases,
            sessions,
            queues,
            grants: Grants::default(),
            moved: KeyedMutex::default(),
            moving: Semaphore::new(MOVING_MAX),
            contention: Contention::default(),
            flights: Flights::default(),
            waiters: WaiterBudget::new(settings.waiters_max),
            settings,
            background,
        }
    }

    /// Milliseconds since the Unix epoch.
    pub(super) fn now_unix_ms(&self) -> u64 {
        self.clock.unix_us() / 1_000
    }

    /// The deadline of one step of a wait that begins now.
    pub(super) fn step_until(&self) -> Instant {
        Instant::now() + self.settings.operation_timeout
    }
}
