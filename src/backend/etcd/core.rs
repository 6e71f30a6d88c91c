//! What the verbs share.

use std::sync::Arc;

use tokio::{sync::Semaphore, time::Instant};

use crate::{
    backend::etcd::{
        background::Background,
        client::{connection::Connection, reads::Looks},
        commit::{
            committer::Committer,
            op::{Op, OpError, Reply},
        },
        keys::Keys,
        lease::{
            grants::{Flights, Grants},
            keeper::Keeper,
            leases::Leases,
            turns::Turns,
        },
        queue::{
            session::{Session, Sessions},
            waiters::Queues,
            watch::stream::WatchStreams,
        },
    },
    lock::{BackendError, Settings, WaiterBudget},
};

/// What the verbs share.
pub(super) struct Core {
    pub(super) keys: Keys,
    pub(super) connection: Arc<Connection>,
    pub(super) committer: Arc<Committer>,
    pub(super) looks: Arc<Looks>,
    pub(super) keeper: Keeper,
    pub(super) leases: Arc<Leases>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) grants: Grants,
    /// Of whatever moves a grant to another lease.
    pub(super) turns: Turns,
    /// Places for moves to other leases.
    pub(super) moving: Semaphore,
    pub(super) flights: Flights,
    pub(super) queues: Queues,
    pub(super) watches: Arc<WatchStreams>,
    pub(super) waiters: WaiterBudget,
    pub(super) settings: Settings,
    pub(super) background: Background,
}

/// A write of an attempt that may still take effect.
#[derive(Debug)]
pub(super) enum Leftover {
    /// A write under this lease.
    Lease(i64),
    /// This waiter's key, put under this session.
    Entry(Arc<Session>, String),
}

/// How an attempt ended without a grant.
#[derive(Debug)]
pub(super) struct Ended {
    /// What the caller is told.
    pub(super) error: BackendError,
    /// What must be brought to an end before the attempt has ended.
    pub(super) leftovers: Vec<Leftover>,
}

impl From<BackendError> for Ended {
    fn from(error: BackendError) -> Self {
        Self { error, leftovers: Vec::new() }
    }
}

impl Core {
    /// When a step of a wait must have been answered.
    pub(super) fn step_until(&self) -> Instant {
        Instant::now() + self.settings.operation_timeout
    }

    /// Commits a write whose lost answer needs no care.
    pub(super) async fn commit(&self, op: Op) -> Result<Reply, OpError> {
        self.committer.commit(op).await
    }
}
