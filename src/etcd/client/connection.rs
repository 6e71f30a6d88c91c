//! The connection to etcd: one endpoint at a time, and another one when it is lost.
//!
//! A process sends everything to one member, so that an operation and its clean-up keep
//! their order, and all tasks see the same loss.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use etcd_client::{Client, ConnectOptions, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use leasehold_lock::observe::Observe;
use leasehold_util::retry::{Backoff, pause_before};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    client::{
        dial::{CONNECT_TIMEOUT, dial},
        failure::{Failure, Refusal},
        link::{Link, Origin},
        silence::LastAnswer,
        terms::{Headed, Terms},
    },
    config::Config,
    keys::Keys,
    revision::Revision,
};

/// How long a request may go unanswered before the connection counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The same with a single endpoint: a new connection leads to the same server, so it
/// helps only if the old one is broken, and costs much if the server is merely slow.
const SILENCE_MAX_ALONE: Duration = Duration::from_secs(3);
/// How long no write that needs space is sent after etcd ran out of it. Each such request
/// costs etcd a raft entry, and the deletes in its batch fail with it.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(1);
/// How long etcd must have had space before its lack is logged again.
const NO_SPACE_WARNING_INTERVAL: Duration = Duration::from_secs(60);
const NO_USER: &str = "etcd asks for no user; username and password have no effect";
const RETRY_DELAY_MIN: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(400);

/// The one connection that is in use, opened again when it is lost.
pub(crate) struct Connection {
    config: Config,
    /// A key range that the user must be allowed to read.
    probe: String,
    current: Mutex<Option<Arc<Link>>>,
    /// Held by the task that connects; all others wait for its result.
    connecting: Arc<tokio::sync::Mutex<()>>,
    generation: AtomicU64,
    terms: Arc<Terms>,
    /// When etcd last had no space left.
    out_of_space: Mutex<Option<Instant>>,
    observer: Arc<dyn Observe>,
}

impl Connection {
    /// A connection that is opened by its first request. Reports each further opening.
    pub(crate) fn new(config: Config, keys: &Keys, observer: Arc<dyn Observe>) -> Self {
        Self {
            config,
            probe: keys.root().to_owned() + "s/",
            current: Mutex::default(),
            connecting: Arc::default(),
            generation: AtomicU64::new(0),
            terms: Arc::default(),
            out_of_space: Mutex::default(),
            observer,
        }
    }

    /// The open connection, or a new one, which is tried for until `until`.
    pub(crate) async fn link(self: &Arc<Self>, until: Instant) -> Result<Arc<Link>, Failure> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let connected = Box::pin(async {
            let turn = Arc::clone(&self.connecting).lock_owned().await;
            let connection = Arc::clone(self);
            // In a task, so that connecting continues after its caller's deadline. The next
            // caller often has little time left too, and otherwise none would succeed.
            let connecting = tokio::spawn(async move {
                let _turn = turn;
                connection.connect(until).await
            });
            connecting.await.unwrap_or_else(|_| {
                Err(Failure::NotSent("connecting to etcd was aborted".into()))
            })
        });
        tokio::select! {
            biased;
            link = connected => link,
            () = sleep_until(until) => Err(Failure::NotSent(
                format!("no endpoint answered ({})", self.config.endpoints.join(", ")).into(),
            )),
        }
    }

    /// The connection that is open by now, or a new one. No attempt begins after `until`.
    async fn connect(&self, until: Instant) -> Result<Arc<Link>, Failure> {
        let mut delays = delays();
        loop {
            if let Some(link) = self.current() {
                return Ok(link);
            }
            match self.connect_any().await {
                Ok((client, raft_term)) => return Ok(self.install(client, raft_term)),
                Err(failure) if !failure.is_passing() => return Err(failure),
                Err(failure) => {
                    if !pause_before(until, delays.next_delay()).await {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Declares a connection lost: its users are notified, and the next request opens
    /// another one.
    pub(crate) fn lose(&self, link: &Link, why: &str) {
        if link.lost.is_cancelled() {
            return;
        }
        warn!(generation = link.generation, why, "the connection to etcd was lost");
        link.lost.cancel();
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|now| now.generation == link.generation) {
            *current = None;
        }
    }

    /// Waits until `until` for the answer to a request, and records its raft term. The
    /// connection counts as lost if no request has been answered over it for
    /// [`Self::silence_max`]. One slow answer is not enough: a new connection costs a busy
    /// server more work, and fails all requests in flight. The request is boxed because its
    /// future takes several kilobytes, which each operation would carry otherwise.
    pub(crate) async fn answer<T: Headed>(
        &self,
        link: &Link,
        until: Instant,
        request: Pin<Box<impl Future<Output = Result<T, etcd_client::Error>>>>,
    ) -> Result<T, Failure> {
        let sent = Instant::now();
        let result = tokio::select! {
            biased;
            result = request => result.map_err(Failure::from),
            () = link.lost() => Err(Failure::Unknown("the connection to etcd was lost".into())),
            () = link.last_answer.silence(sent, self.silence_max()) => {
                self.lose(link, "no answer");
                return Err(slow());
            }
            () = sleep_until(until) => return Err(slow()),
        };
        match &result {
            Ok(answer) => {
                link.last_answer.note();
                link.note(answer);
            }
            Err(Failure::Refused(refusal, why)) if refusal.is_of_login() => {
                Box::pin(self.log_in_again(link, sent, until)).await?;
                return Err(Failure::NotSent(Arc::clone(why)));
            }
            Err(failure) => self.failed(link, failure),
        }
        result
    }

    /// Handles the failure of a request or a stream: the connection is lost, unless the
    /// failure is an answer of etcd itself.
    pub(crate) fn failed(&self, link: &Link, failure: &Failure) {
        if let Failure::OutOfSpace(why) = failure {
            self.note_no_space(why);
        }
        let by_etcd = failure.why().contains("etcdserver:");
        // A member without a leader may be cut off from the others.
        if failure.is_passing() && (!by_etcd || self.has_others()) {
            self.lose(link, failure.why());
        }
    }

    /// How long an answer may be outstanding before the connection counts as lost.
    pub(crate) fn silence_max(&self) -> Duration {
        if self.has_others() { SILENCE_MAX } else { SILENCE_MAX_ALONE }
    }

    /// Whether there is more than one endpoint.
    pub(crate) fn has_others(&self) -> bool {
        self.config.endpoints.len() > 1
    }

    /// Replaces a silent connection by the first endpoint that answers; until then the
    /// silent one stays in use. Ends when `link` is no longer in use. The caller drops the
    /// future when `link` answers after all.
    pub(crate) async fn replace(&self, link: &Link) {
        let _turn = self.connecting.lock().await;
        let mut delays = delays();
        while self.current().is_none_or(|current| current.generation == link.generation) {
            match self.connect_any().await {
                Ok((client, raft_term)) => {
                    self.lose(link, "it is silent, and another endpoint answers");
                    self.install(client, raft_term);
                }
                Err(_) => delays.pause().await,
            }
        }
    }

    /// Whether the open connection has answered a request within the last
    /// [`Self::silence_max`].
    pub(crate) fn is_answering(&self) -> bool {
        let silence_max = self.silence_max();
        self.current().is_some_and(|link| Instant::now() < link.last_answer.at() + silence_max)
    }

    /// Whether etcd ran out of space a moment ago.
    pub(crate) fn is_out_of_space(&self, now: Instant) -> bool {
        let since = *self.out_of_space.lock();
        since.is_some_and(|since| now < since + NO_SPACE_PAUSE)
    }

    fn note_no_space(&self, why: &str) {
        let now = Instant::now();
        let mut since = self.out_of_space.lock();
        if since.replace(now).is_none_or(|before| now >= before + NO_SPACE_WARNING_INTERVAL) {
            warn!(why, "etcd takes no new locks");
        }
    }

    /// Logs in again after a request sent at `refused` was refused because of its login,
    /// unless another caller has done so since. A login expires after a while, and with
    /// every change of users and roles, also with one that turns authentication off or on; a
    /// stream keeps the one that it was opened with. The connection itself stays in use.
    pub(crate) async fn log_in_again(
        &self,
        link: &Link,
        refused: Instant,
        until: Instant,
    ) -> Result<(), Failure> {
        let Some(user) = &self.config.user else {
            let why = "etcd asks for a user; username is missing";
            return Err(Failure::Refused(Refusal::Credentials, why.into()));
        };
        let slow = |_| Failure::NotSent("etcd did not answer a login in time".into());
        let until = until.min(Instant::now() + self.silence_max());
        let mut login = timeout_at(until, link.login.lock()).await.map_err(slow)?;
        if *login <= refused {
            let asked = Instant::now();
            // The clones of a client share its login.
            let mut client = link.client.clone();
            let logging_in = Box::pin(client.update_user(Some(user.clone())));
            match timeout_at(until, logging_in).await.map_err(slow)?.map_err(Failure::from) {
                Err(Failure::Refused(Refusal::AuthNotEnabled, _)) => {
                    warn!("{NO_USER}");
                    client.update_user(None).await?;
                }
                logged_in => logged_in?,
            }
            *login = asked;
        }
        Ok(())
    }

    /// Reads at one revision, which is returned, linearizably; retries until `until`.
    pub(crate) async fn read(
        self: &Arc<Self>,
        gets: Vec<TxnOp>,
        until: Instant,
    ) -> Result<(Revision, Vec<GetResponse>), Failure> {
        let mut delays = delays();
        loop {
            let link = self.link(until).await?;
            let mut client = link.client().kv_client();
            let request = Box::pin(client.txn(Txn::new().and_then(gets.clone())));
            match self.answer(&link, until, request).await {
                Err(failure) if failure.is_passing() => {
                    if !pause_before(until, delays.next_delay()).await {
                        return Err(Failure::NotSent(Arc::clone(failure.why())));
                    }
                }
                Err(failure) => return Err(failure),
                Ok(read) => {
                    let found =
                        read.op_responses().into_iter().filter_map(|found| match found {
                            TxnOpResponse::Get(get) => Some(get),
                            _ => None,
                        });
                    let found: Vec<_> = found.collect();
                    if found.len() != gets.len() {
                        return Err(Failure::Unknown("etcd answered something else".into()));
                    }
                    return Ok((Revision::of(read.header()), found));
                }
            }
        }
    }

    /// A read that every user of the store may make. It renews an expired login, which the
    /// refusal of a watch or a keep-alive does not.
    pub(crate) async fn check(self: &Arc<Self>, until: Instant) -> Result<(), Failure> {
        let access = TxnOp::get(self.probe.clone() + "access", None);
        self.read(vec![access], until).await.map(|_| ())
    }

    /// The origin of a lease that is granted now, over the newest connection.
    pub(crate) fn origin(&self) -> Origin {
        Origin { connection: self.generation(), term: self.term() }
    }

    /// The number of the current term.
    pub(crate) fn term(&self) -> u64 {
        self.terms.current()
    }

    /// The number of the connection that was opened last.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn current(&self) -> Option<Arc<Link>> {
        self.current.lock().clone()
    }

    fn install(&self, client: Client, raft_term: u64) -> Arc<Link> {
        self.terms.begin(raft_term);
        let link = Arc::new(Link {
            generation: self.generation.fetch_add(1, Ordering::AcqRel) + 1,
            terms: Arc::clone(&self.terms),
            client,
            login: tokio::sync::Mutex::new(Instant::now()),
            last_answer: LastAnswer::new(),
            lost: CancellationToken::new(),
        });
        *self.current.lock() = Some(Arc::clone(&link));
        if link.generation > 1 {
            info!(generation = link.generation, "connected to etcd again");
            self.observer.reconnected();
        }
        link
    }

    /// Tries all endpoints at once, and takes the first that answers a read. Also returns
    /// the raft term.
    async fn connect_any(&self) -> Result<(Client, u64), Failure> {
        let mut tries: FuturesUnordered<_> =
            self.config.endpoints.iter().map(|endpoint| self.open(endpoint)).collect();
        let mut failure = None;
        while let Some(result) = tries.next().await {
            match result {
                Ok(connected) => return Ok(connected),
                // A refusal by etcd is more informative than a missing answer.
                Err(refused @ Failure::Refused(..)) => failure = Some(refused),
                Err(other) => failure = failure.or(Some(other)),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::NotSent("there is no endpoint".into())))
    }

    async fn open(&self, endpoint: &str) -> Result<(Client, u64), Failure> {
        let work = async {
            let client = match self.log_in(endpoint, self.config.user.is_some()).await {
                Err(Failure::Refused(Refusal::AuthNotEnabled, _)) => {
                    warn!(endpoint, "{NO_USER}");
                    self.log_in(endpoint, false).await?
                }
                result => result?,
            };
            let probe = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
            let read = client.kv_client().get(self.probe.clone(), Some(probe)).await?;
            Ok((client, read.raft_term()))
        };
        let result = timeout(CONNECT_TIMEOUT, work)
            .await
            .unwrap_or_else(|_| Err(Failure::NotSent("no answer".into())));
        result.map_err(|failure| match failure {
            Failure::Refused(refusal, why) => Failure::Refused(refusal, why),
            other => Failure::NotSent(format!("{endpoint}: {}", other.why()).into()),
        })
    }

    async fn log_in(&self, endpoint: &str, with_user: bool) -> Result<Client, Failure> {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let (true, Some((name, password))) = (with_user, &self.config.user) {
            options = options.with_user(name, password).with_auto_token_refresh(true);
        }
        let channel = dial(endpoint, self.config.tls.as_ref())?;
        Ok(Client::from_channel(channel, Some(options)).await?)
    }
}

fn slow() -> Failure {
    Failure::Unknown("etcd did not answer in time".into())
}

/// Delays between retries.
pub(crate) fn delays() -> Backoff {
    Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX)
}
