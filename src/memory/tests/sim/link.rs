//! The connection of one process to the server, with the faults of calls.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use leasehold_lock::{
    Attempt, Backend, BackendError, Feature, Grant, Release, Renewal, Renewed,
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

use super::{
    history::What,
    link_faults::{Fate, LinkFaults},
    server::Server,
};

/// After this long, a wait of a process that is gone is skipped.
const PASSED_OVER_MS: u64 = 4_000;
/// How long a lost call stays unnoticed: longer than any call's time.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest outage that a wait survives.
const OUTAGE: Duration = Duration::from_secs(5);

/// A process's adapter of the port. Messages arrive in the order in which they
/// are sent; the fault of each call is drawn from the seed.
pub struct Link {
    server: Arc<Server>,
    process: u8,
    /// Distinguishes this process's waits from those of its predecessor.
    incarnation: u32,
    state: Mutex<State>,
}

struct State {
    faults: LinkFaults,
    /// When the last message arrives: later ones must not arrive before.
    arrived: Instant,
    dead: bool,
}

/// A message under way.
struct Sent {
    since: Instant,
    arrives: Instant,
    fate: Fate,
    reply_delay: Duration,
}

impl Link {
    pub fn new(server: Arc<Server>, process: u8, incarnation: u32, faults: LinkFaults) -> Self {
        let state = State { faults, arrived: Instant::now(), dead: false };
        Self { server, process, incarnation, state: Mutex::new(state) }
    }

    /// From now on, every call is delivered at once.
    pub fn clear(&self) {
        self.state.lock().unwrap().faults.clear();
    }

    /// The process was killed: nothing is sent or answered any more, and its
    /// waiters are removed when the server notices.
    pub fn kill(&self) {
        let noticed = {
            let mut state = self.state.lock().unwrap();
            state.dead = true;
            state.faults.delay_up_to(PASSED_OVER_MS)
        };
        let (server, incarnation) = (Arc::clone(&self.server), self.incarnation);
        tokio::spawn(async move {
            sleep(noticed).await;
            server.end_waits_of(incarnation);
        });
    }

    /// Sends a message; an error if it was certainly not sent.
    async fn send(&self) -> Result<Sent, BackendError> {
        let (sent, dead) = {
            let mut state = self.state.lock().unwrap();
            let fate = state.faults.fate();
            let delay = state.faults.delay();
            let since = Instant::now();
            let arrives = (since + delay).max(state.arrived + Duration::from_millis(1));
            if fate != Fate::NotSent {
                state.arrived = arrives;
            }
            let reply_delay = state.faults.delay();
            (Sent { since, arrives, fate, reply_delay }, state.dead)
        };
        if dead {
            std::future::pending::<()>().await;
        }
        if sent.fate != Fate::Fine {
            let fault = sent.fate.name();
            self.server.history.note(What::Fault { process: self.process, fault });
        }
        if sent.fate == Fate::NotSent {
            sleep(sent.reply_delay).await;
            return Err(BackendError::Unavailable("not sent".into()));
        }
        Ok(sent)
    }

    /// Sends an operation, and waits for its answer until `until`. A silent
    /// fault is noticed after `silence`.
    async fn call<T: Send + 'static>(
        &self,
        until: Instant,
        silence: Duration,
        happens: impl FnOnce(Arc<Server>) -> BoxFuture<'static, Option<Result<T, BackendError>>>
        + Send
        + 'static,
    ) -> Result<(T, Instant), BackendError> {
        let sent = self.send().await?;
        let server = Arc::clone(&self.server);
        let (answer, answered) = oneshot::channel();
        let starts = server.starts();
        tokio::spawn(async move {
            sleep_until(sent.arrives).await;
            if sent.fate.request_arrives() && server.starts() == starts {
                let Some(result) = happens(Arc::clone(&server)).await else { return };
                sleep(sent.reply_delay).await;
                if sent.fate == Fate::Fine && server.starts() == starts {
                    let _ = answer.send(result);
                    return;
                }
            }
            if sent.fate.is_silent() && server.starts() == starts {
                sleep(silence).await;
            }
            drop(answer);
        });
        let until = if sent.fate == Fate::Stuck { until + SILENCE } else { until };
        let unknown = || BackendError::Unknown("no answer".into());
        tokio::select! {
            biased;
            answer = answered => {
                answer.map_err(|_| unknown())?.map(|value| (value, sent.since))
            }
            () = sleep_until(until) => Err(unknown()),
        }
    }
}

#[async_trait]
impl Backend for Link {
    fn features(&self) -> &[Feature] {
        &[Feature::Fencing, Feature::ForceUnlock, Feature::Fair, Feature::Replay]
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let asked = attempt.clone();
        let happens = move |server: Arc<Server>| -> BoxFuture<'static, _> {
            Box::pin(async move { Some(server.try_lock(&asked)) })
        };
        let (grant, since) = self.call(until, SILENCE, happens).await?;
        Ok(Grant { since: leasehold_lock::Instant::now() - since.elapsed(), ..grant })
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let (asked, incarnation) = (attempt.clone(), self.incarnation);
        let happens = move |server: Arc<Server>| -> BoxFuture<'static, _> {
            Box::pin(async move { server.lock(&asked, incarnation).await })
        };
        // Without an end, except after too long an outage.
        let until = Instant::now() + Duration::from_secs(3600);
        let (grant, _) = self.call(until, OUTAGE, happens).await?;
        Ok(grant)
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let asked = renewal.clone();
        let happens = move |server: Arc<Server>| -> BoxFuture<'static, _> {
            Box::pin(async move { Some(server.renew(&asked)) })
        };
        let (renewed, since) = self.call(until, SILENCE, happens).await?;
        Ok(Renewed { since: leasehold_lock::Instant::now() - since.elapsed(), ..renewed })
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        // The port lends the release; the message needs a copy with its target.
        let sent = Arc::new(Release::new(release.resource.clone(), release.of.clone()));
        if let Some(target) = release.target.fixed() {
            sent.target.fix(target);
        }
        let mut fixes = Fixes { release, sent: Arc::clone(&sent), server: Some(&self.server) };
        let happens = move |server: Arc<Server>| -> BoxFuture<'static, _> {
            Box::pin(async move { Some(server.unlock(&sent)) })
        };
        let result = self.call(until, SILENCE, happens).await;
        if matches!(result, Err(BackendError::Unavailable(_))) {
            fixes.server = None;
        }
        result.map(drop)
    }

    async fn ping(&self, _: Instant) -> Result<(), BackendError> {
        Ok(())
    }

    async fn close(&self) {}
}

/// Once a release may have been sent, it must not end a grant that is made
/// later, neither by a late message nor by the next try.
struct Fixes<'a> {
    release: &'a Release,
    sent: Arc<Release>,
    server: Option<&'a Server>,
}

impl Drop for Fixes<'_> {
    fn drop(&mut self) {
        let Some(server) = self.server else { return };
        server.fix(&self.sent);
        if let Some(target) = self.sent.target.fixed() {
            self.release.target.fix(target);
        }
    }
}
