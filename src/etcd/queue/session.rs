//! The session of a process: the lease under which its waiters' entries lie.
//!
//! When the process dies, the lease ends within seconds, and the entries with it. The
//! session has a key of its own, which is compared when an entry is put. So no entry can
//! appear after its session is gone, and writing the key again (a fence) makes sure that no
//! entry whose answer was lost can be put later.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_lock::Mode;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use crate::{
    client::failure::Failure,
    commit::op::Op,
    etcd::Etcd,
    keys::{EntryId, Keys},
    lease::{keep_alives::KeepAlives, leases::Leases, pool::Lease, resolve::Begun},
    revision::Revision,
};

/// The waiters of a dead process are skipped after this time, plus the half second in
/// which etcd looks for expired leases.
const SESSION_TTL_S: u64 = 3;
/// Short enough that the lease outlives a pause of etcd of 2.4 s, or as long a search for
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
    /// The revision at which its key was last written, which entries compare.
    fenced_at: AtomicU64,
    /// How many fences were begun.
    fences_begun: AtomicU64,
    /// Locked while its key is written again: one fence at a time.
    fences: tokio::sync::Mutex<Fences>,
    next_seq: AtomicU64,
}

/// The results of a session's fences.
#[derive(Debug, Default)]
struct Fences {
    /// The number of the last one that succeeded.
    succeeded: u64,
    /// Whether one found the session's key gone.
    gone: bool,
}

impl Session {
    /// The name of the next entry, of a waiter for a grant of this mode.
    pub(crate) fn next_entry(&self, mode: Mode) -> EntryId {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        EntryId { session: self.id.clone(), seq, shared: mode == Mode::Shared }
    }

    /// The lease that its entries lie under.
    pub(crate) fn lease_id(&self) -> i64 {
        self.lease.id
    }

    /// The key that its entries compare.
    pub(crate) fn key(&self, keys: &Keys) -> String {
        keys.session(&self.id)
    }
}

/// The current session, and the task that keeps it alive.
pub(crate) struct Sessions {
    etcd: Arc<Etcd>,
    leases: Arc<Leases>,
    /// Begins the name of every session of this backend instance.
    instance: Arc<str>,
    made: AtomicU64,
    current: tokio::sync::Mutex<Option<Arc<Session>>>,
}

impl Sessions {
    /// Starts the task that keeps the session alive; it ends with the backend.
    pub(crate) fn start(etcd: Arc<Etcd>, leases: Arc<Leases>) -> Arc<Self> {
        let sessions = Arc::new(Self {
            etcd,
            leases,
            instance: Uuid::new_v4().simple().to_string().into(),
            made: AtomicU64::new(0),
            current: tokio::sync::Mutex::default(),
        });
        sessions.etcd.background.spawn(Arc::clone(&sessions).keep());
        sessions
    }

    /// What the names of this backend instance's sessions begin with, and no others.
    pub(crate) fn instance(&self) -> Arc<str> {
        Arc::clone(&self.instance)
    }

    /// The session, or a new one.
    pub(crate) async fn current(&self, until: Instant) -> Result<Arc<Session>, Failure> {
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

    /// Puts an entry, and returns its revision; `None` if its session is gone, so that it was not
    /// put. If the answer is lost, the session is fenced, and the entry is then looked for.
    pub(crate) async fn enter(
        &self,
        session: &Session,
        key: &str,
        value: String,
        until: Instant,
        unwanted: &CancellationToken,
    ) -> Result<Option<Revision>, Failure> {
        loop {
            let fenced_at = Revision(session.fenced_at.load(Ordering::Acquire));
            let session_key = self.etcd.keys.session(&session.id);
            let op = Op::new(until)
                .entering()
                .when_written_at(&session_key, fenced_at)
                .put(key, value.clone(), session.lease.id)
                .or_get(&session_key);
            match self.etcd.committer.commit_while_wanted(op, unwanted).await {
                Ok(reply) if reply.succeeded => return Ok(Some(reply.revision)),
                Ok(reply) => match reply.pair() {
                    None => {
                        self.lose(session).await;
                        return Ok(None);
                    }
                    Some(pair) => {
                        let now = Revision::from_etcd(pair.mod_revision());
                        if now < fenced_at {
                            // An older data set was restored, in which no entry would ever
                            // be put with this revision.
                            if self.lose(session).await {
                                self.leases.revoke(session.lease.id);
                            }
                            return Ok(None);
                        }
                        // Fenced meanwhile, for another entry's sake.
                        session.fenced_at.fetch_max(now.0, Ordering::AcqRel);
                    }
                },
                Err(failure @ (Failure::OutOfSpace(_) | Failure::Unknown(_))) => {
                    // Without space, it is not on its way any more, so it needs no fence.
                    let may_come = matches!(failure, Failure::Unknown(_));
                    if may_come && !self.fence(session, until).await? {
                        self.lose(session).await;
                        return Ok(None);
                    }
                    match self.find(key, until).await {
                        Ok(Some(revision)) => return Ok(Some(revision)),
                        Ok(None) if may_come => {}
                        Ok(None) => return Err(Failure::NotSent(Arc::clone(failure.why()))),
                        Err(_) => return Err(Failure::Unknown(Arc::clone(failure.why()))),
                    }
                }
                Err(failure) => return Err(failure),
            }
            if Instant::now() >= until {
                return Err(Failure::NotSent("the queue could not be entered in time".into()));
            }
        }
    }

    /// Removes an entry that is known to have been put.
    pub(crate) async fn delete_entry(&self, key: &str, until: Instant) -> Result<(), Failure> {
        let op = Op::new(until).delete(key);
        loop {
            match self.etcd.committer.commit(op.clone()).await {
                // A delete needs no space itself, so others in its batch are the reason.
                Err(Failure::OutOfSpace(_)) if Instant::now() < until => {}
                committed => return committed.map(|_| ()),
            }
        }
    }

    /// Removes an entry that may have been put, or may be put later.
    pub(crate) async fn remove_entry(
        &self,
        session: &Session,
        key: &str,
        until: Instant,
    ) -> Result<(), Failure> {
        match self.fence(session, until).await {
            Ok(false) => {
                // The entries went with the session.
                self.lose(session).await;
                Ok(())
            }
            // Also if the fence failed, for it takes space that a delete does not.
            fenced => self.delete_entry(key, until).await.and(fenced.map(|_| ())),
        }
    }

    /// Ends the session.
    pub(crate) async fn close(&self) {
        let session = self.current.lock().await.take();
        if let Some(session) = session {
            let until = Instant::now() + CLOSE_TIMEOUT;
            let _ = self.leases.revoke_now(session.lease.id, until).await;
        }
    }

    /// Makes a session. If that fails, nothing is left but the lease, which is revoked.
    async fn create(&self, until: Instant) -> Result<Session, Failure> {
        let mut lease = self.leases.grant(SESSION_TTL_S, until).await?;
        let id = format!("{}.{}", self.instance, self.made.fetch_add(1, Ordering::Relaxed));
        let key = self.etcd.keys.session(&id);
        let op = Op::new(until).put(&key, "", lease.id);
        lease.begin(Begun::new(&key));
        let reply = self.etcd.committer.commit(op).await?;
        Ok(Session {
            id,
            lease: lease.used(),
            fenced_at: AtomicU64::new(reply.revision.0),
            fences_begun: AtomicU64::new(0),
            fences: tokio::sync::Mutex::default(),
            next_seq: AtomicU64::new(0),
        })
    }

    /// Writes the session's key again, so that no entry that is on its way can be put any
    /// more; `false` if the session is gone.
    ///
    /// All who ask before a fence begins share it. Every fence makes the entries that wait to
    /// be sent start again, so a fence for each of the many answers that an outage can lose
    /// would keep all waiters out of the queue until the last of them was written.
    async fn fence(&self, session: &Session, until: Instant) -> Result<bool, Failure> {
        let needed = session.fences_begun.load(Ordering::Acquire) + 1;
        let mut fences = session.fences.lock().await;
        if fences.gone {
            return Ok(false);
        }
        if fences.succeeded >= needed {
            return Ok(true);
        }
        let number = session.fences_begun.fetch_add(1, Ordering::AcqRel) + 1;
        let key = self.etcd.keys.session(&session.id);
        loop {
            let op = Op::new(until).when_present(&key).put(&key, "", session.lease.id);
            match self.etcd.committer.commit(op).await {
                Ok(reply) if reply.succeeded => {
                    session.fenced_at.fetch_max(reply.revision.0, Ordering::AcqRel);
                    fences.succeeded = number;
                    return Ok(true);
                }
                Ok(_) => {
                    fences.gone = true;
                    return Ok(false);
                }
                // A fence may be written twice.
                Err(Failure::Unknown(_)) if Instant::now() < until => {}
                Err(failure) => return Err(Failure::Unknown(Arc::clone(failure.why()))),
            }
        }
    }

    /// The revision at which a key was created, if it exists.
    async fn find(&self, key: &str, until: Instant) -> Result<Option<Revision>, Failure> {
        let found = self.etcd.reads.key(key.to_owned(), until).await?;
        Ok(found.map(|pair| Revision::from_etcd(pair.create_revision())))
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
        let keep_alives =
            KeepAlives::start_urgent(&self.etcd.connection, &self.etcd.background);
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
                        self.leases.revoke(session.lease.id);
                        *current = None;
                        continue;
                    }
                    Some(_) => {}
                }
                current.clone()
            };
            let Some(session) = session else { continue };
            let until = Instant::now() + KEEP_ALIVE_TIMEOUT;
            let kept = keep_alives.keep_alive(session.lease.id, until, until).await;
            if kept == Ok(None) {
                self.lose(&session).await;
            }
        }
    }
}
