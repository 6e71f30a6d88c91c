//! The session under whose lease a process's waiters stand.
//!
//! When the process dies, the lease ends within seconds, and its waiters with
//! it. The session has a key of its own, which every entry compares: so an
//! entry cannot appear after its session is gone, and writing that key anew
//! fences off whatever entry is still on its way after a lost answer.

mod keep_alive;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{Compare, CompareOp, PutOptions, TxnOp};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use crate::backend::etcd::{
    background::Background,
    client::{connection::Connection, failure::Failure},
    commit::{
        committer::Committer,
        op::{Op, OpError},
    },
    keys::{EntryId, Keys},
    lease::{leases::Leases, pool::Lease},
    queue::session::keep_alive::{KeepAlive, Kept},
    verbs::acquire::as_etcd,
};

/// A dead process's waiters are passed over after this, plus the half second
/// in which etcd looks for expired leases.
const SESSION_TTL_S: u64 = 3;
/// So the lease outlives a pause of etcd of 2.4 s, or as much time spent on finding
/// another endpoint.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(600);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a session without waiters is kept.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long closing waits for the lease to be revoked.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    id: String,
    lease: Lease,
    /// The revision of its key that entries compare.
    epoch: AtomicU64,
    next_seq: AtomicU64,
}

impl Session {
    /// The next entry's name.
    pub(crate) fn next_entry(&self) -> EntryId {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        EntryId { session: self.id.clone(), seq }
    }

    /// The lease that its entries stand under.
    pub(crate) fn lease_id(&self) -> i64 {
        self.lease.id
    }

    /// The key that its entries compare.
    pub(crate) fn key(&self, keys: &Keys) -> String {
        keys.session(&self.id)
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It stands in the queue since this revision.
    At(u64),
    /// Its session is gone; it was not put.
    SessionLost,
}

/// See the module.
pub(crate) struct Sessions {
    keys: Keys,
    committer: Arc<Committer>,
    leases: Arc<Leases>,
    connection: Arc<Connection>,
    /// Begins the name of every session of this backend instance.
    instance: Arc<str>,
    made: AtomicU64,
    current: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// One fence at a time.
    fencing: tokio::sync::Mutex<()>,
}

impl Sessions {
    /// Starts what keeps the session alive; its task ends with `background`.
    pub(crate) fn start(
        keys: Keys,
        committer: Arc<Committer>,
        leases: Arc<Leases>,
        connection: Arc<Connection>,
        background: &Background,
    ) -> Arc<Self> {
        let sessions = Arc::new(Self {
            keys,
            committer,
            leases,
            connection,
            instance: Uuid::new_v4().simple().to_string().into(),
            made: AtomicU64::new(0),
            current: tokio::sync::Mutex::default(),
            fencing: tokio::sync::Mutex::default(),
        });
        background.spawn(Arc::clone(&sessions).keep());
        sessions
    }

    /// What the names of this backend instance's sessions begin with, and no others.
    pub(crate) fn instance(&self) -> Arc<str> {
        Arc::clone(&self.instance)
    }

    /// The session, or a new one.
    pub(crate) async fn current(&self, until: Instant) -> Result<Arc<Session>, OpError> {
        let mut current = self.current.lock().await;
        if let Some(session) = &*current {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.create(until).await?);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The session, if there is one.
    pub(crate) async fn kept(&self) -> Option<Arc<Session>> {
        self.current.lock().await.clone()
    }

    /// Puts an entry unless the session is gone. An answer that is lost is
    /// found out: the entry is fenced off, then looked for.
    pub(crate) async fn enter(
        &self,
        session: &Session,
        key: &str,
        value: String,
        until: Instant,
        unwanted: &CancellationToken,
    ) -> Result<Entered, OpError> {
        loop {
            let epoch = session.epoch.load(Ordering::Acquire);
            let session_key = self.keys.session(&session.id);
            let put = PutOptions::new().with_lease(session.lease.id);
            let op = Op {
                claims: None,
                enters: true,
                bytes: key.len() + 2 * session_key.len() + value.len(),
                when: vec![Compare::mod_revision(
                    session_key.clone(),
                    CompareOp::Equal,
                    as_etcd(epoch),
                )],
                then: vec![TxnOp::put(key, value.clone(), Some(put))],
                otherwise: vec![TxnOp::get(session_key, None)],
                until,
                lease: None,
            };
            match self.committer.commit_while_wanted(op, unwanted).await {
                Ok(reply) if reply.succeeded => return Ok(Entered::At(reply.revision)),
                Ok(reply) => match reply.pair(0) {
                    None => {
                        self.lose(session).await;
                        return Ok(Entered::SessionLost);
                    }
                    Some(pair) => {
                        let now =
                            crate::backend::etcd::verbs::acquire::revision(pair.mod_revision());
                        if now < epoch {
                            // An older data set was restored: no entry would
                            // ever be put with what is known of the session.
                            if self.lose(session).await {
                                self.leases.revoke_later(session.lease.id);
                            }
                            return Ok(Entered::SessionLost);
                        }
                        // Fenced meanwhile, for another entry's sake.
                        session.epoch.fetch_max(now, Ordering::AcqRel);
                    }
                },
                // No longer on its way, so that it needs no fence.
                Err(OpError::OutOfSpace(why)) => {
                    return match self.find(key, until).await {
                        Ok(Some(revision)) => Ok(Entered::At(revision)),
                        Ok(None) => Err(OpError::NotSent(why)),
                        Err(_) => Err(OpError::Unknown(why)),
                    };
                }
                Err(OpError::Unknown(why)) => {
                    if !self.fence(session, until).await? {
                        self.lose(session).await;
                        return Ok(Entered::SessionLost);
                    }
                    match self.find(key, until).await {
                        Ok(Some(revision)) => return Ok(Entered::At(revision)),
                        Ok(None) => {}
                        Err(_) => return Err(OpError::Unknown(why)),
                    }
                }
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Err(OpError::NotSent("the queue could not be entered in time".into()));
            }
        }
    }

    /// Removes an entry that is known to have been put.
    pub(crate) async fn delete_entry(&self, key: &str, until: Instant) -> Result<(), OpError> {
        let op = Op {
            claims: None,
            enters: false,
            bytes: key.len(),
            when: Vec::new(),
            then: vec![TxnOp::delete(key, None)],
            otherwise: Vec::new(),
            until,
            lease: None,
        };
        loop {
            match self.committer.commit(op.clone()).await {
                // Because of others in its batch; it may be repeated.
                Err(OpError::OutOfSpace(_)) if Instant::now() < until => {}
                committed => return committed.map(|_| ()),
            }
        }
    }

    /// Removes an entry that may have been put, or may yet be.
    pub(crate) async fn remove_entry(
        &self,
        session: &Session,
        key: &str,
        until: Instant,
    ) -> Result<(), OpError> {
        match self.fence(session, until).await {
            Ok(false) => {
                // The entries went with the session.
                self.lose(session).await;
                Ok(())
            }
            // Also unfenced, which takes space: what stands in the queue goes.
            fenced => self.delete_entry(key, until).await.and(fenced.map(|_| ())),
        }
    }

    /// Gives the session back.
    pub(crate) async fn close(&self) {
        let session = self.current.lock().await.take();
        if let Some(session) = session {
            let until = Instant::now() + CLOSE_TIMEOUT;
            let _ = self.leases.revoke_now(session.lease.id, until).await;
        }
    }

    async fn create(&self, until: Instant) -> Result<Session, OpError> {
        let failed = |failure: Failure| OpError::NotSent(Arc::clone(failure.why()));
        let lease = self.leases.grant(SESSION_TTL_S, until).await.map_err(failed)?;
        let id = format!("{}.{}", self.instance, self.made.fetch_add(1, Ordering::Relaxed));
        let key = self.keys.session(&id);
        let op = Op {
            claims: None,
            enters: false,
            bytes: 2 * key.len(),
            when: Vec::new(),
            then: vec![TxnOp::put(key, "", Some(PutOptions::new().with_lease(lease.id)))],
            otherwise: Vec::new(),
            until,
            lease: None,
        };
        match self.committer.commit(op).await {
            Ok(reply) => Ok(Session {
                id,
                lease,
                epoch: AtomicU64::new(reply.revision),
                next_seq: AtomicU64::new(0),
            }),
            Err(error) => {
                // Nothing else is under it.
                self.leases.revoke_later(lease.id);
                Err(OpError::NotSent(error.why()))
            }
        }
    }

    /// Writes the session's key anew, so that no entry that is on its way can
    /// be put any more; `false` if the session is gone.
    async fn fence(&self, session: &Session, until: Instant) -> Result<bool, OpError> {
        let _one = self.fencing.lock().await;
        let key = self.keys.session(&session.id);
        loop {
            let put = PutOptions::new().with_lease(session.lease.id);
            let op = Op {
                claims: None,
                enters: false,
                bytes: 2 * key.len(),
                when: vec![Compare::create_revision(key.clone(), CompareOp::Greater, 0)],
                then: vec![TxnOp::put(key.clone(), "", Some(put))],
                otherwise: Vec::new(),
                until,
                lease: None,
            };
            match self.committer.commit(op).await {
                Ok(reply) if reply.succeeded => {
                    session.epoch.fetch_max(reply.revision, Ordering::AcqRel);
                    return Ok(true);
                }
                Ok(_) => return Ok(false),
                // A fence may be written twice.
                Err(OpError::Unknown(_)) if Instant::now() < until => {}
                Err(error) => return Err(OpError::Unknown(error.why())),
            }
        }
    }

    async fn find(&self, key: &str, until: Instant) -> Result<Option<u64>, Failure> {
        let get = vec![TxnOp::get(key, None)];
        let read = self.committer.connection().read(get, until).await?;
        Ok(match read.op_responses().first() {
            Some(etcd_client::TxnOpResponse::Get(get)) => get.kvs().first().map(|pair| {
                crate::backend::etcd::verbs::acquire::revision(pair.create_revision())
            }),
            _ => None,
        })
    }

    /// Forgets a session; `false` if somebody else did before.
    async fn lose(&self, lost: &Session) -> bool {
        let mut current = self.current.lock().await;
        let is_current = current.as_ref().is_some_and(|session| session.id == lost.id);
        if is_current {
            warn!("the session with etcd was lost; waiters queue again");
            *current = None;
        }
        is_current
    }

    async fn keep(self: Arc<Self>) {
        let mut ticks = interval(KEEP_ALIVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut keep_alive = KeepAlive::new(Arc::clone(&self.connection));
        let mut used = Instant::now();
        loop {
            ticks.tick().await;
            let session = {
                let mut current = self.current.lock().await;
                match &*current {
                    None => {
                        used = Instant::now();
                        continue;
                    }
                    Some(session) if Arc::strong_count(session) > 1 => used = Instant::now(),
                    Some(session) if used.elapsed() >= IDLE_MAX => {
                        self.leases.revoke_later(session.lease.id);
                        *current = None;
                        continue;
                    }
                    Some(_) => {}
                }
                current.clone()
            };
            let Some(session) = session else { continue };
            let until = Instant::now() + KEEP_ALIVE_TIMEOUT;
            if keep_alive.keep(session.lease.id, until).await == Kept::Dead {
                self.lose(&session).await;
            }
        }
    }
}
