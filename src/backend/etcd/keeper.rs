//! Keep-alives of all leases, over one stream.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use etcd_client::{Error, LeaseKeepAliveResponse};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    background::Background,
    connection::{Connection, Link, delays},
    failure::Failure,
};

/// Keep-alives that wait to be sent.
const ASKED_MAX: usize = 10_000;
/// Keep-alives sent and not answered.
const SENT_MAX: usize = 1_000;
/// How long to try for a connection before those who wait are told.
const LINK_TIMEOUT: Duration = Duration::from_secs(2);

/// A lease that was kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptAlive {
    /// Its TTL, starting again.
    pub(super) ttl_s: u64,
    /// When the keep-alive was sent, or earlier.
    pub(super) sent: Instant,
}

/// Why a lease was not kept alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeepError {
    /// It is dead, and its keys are gone.
    Dead,
    /// No answer.
    Failed(Arc<str>),
}

struct Ask {
    id: i64,
    at: Instant,
    answer: oneshot::Sender<Result<KeptAlive, KeepError>>,
}

/// A handle on the stream.
#[derive(Clone)]
pub(super) struct Keeper {
    asks: mpsc::Sender<Ask>,
}

impl Keeper {
    /// Starts it; its task ends with `background`.
    pub(super) fn start(connection: Arc<Connection>, background: &Background) -> Self {
        let (asks, asked) = mpsc::channel(ASKED_MAX);
        background.spawn(run(connection, asked));
        Self { asks }
    }

    /// Keeps a lease alive. An answer that is lost is asked for again until
    /// `until`: a keep-alive may be repeated.
    pub(super) async fn keep_alive(
        &self,
        id: i64,
        until: Instant,
    ) -> Result<KeptAlive, KeepError> {
        let mut delays = delays();
        loop {
            let result = tokio::select! {
                biased;
                result = self.ask(id) => result,
                () = sleep_until(until) => {
                    return Err(KeepError::Failed("etcd did not answer a keep-alive in time".into()));
                }
            };
            let Err(KeepError::Failed(why)) = result else { return result };
            let retry = Instant::now() + delays.next().unwrap_or(LINK_TIMEOUT);
            if retry >= until {
                return Err(KeepError::Failed(why));
            }
            sleep_until(retry).await;
        }
    }

    async fn ask(&self, id: i64) -> Result<KeptAlive, KeepError> {
        let (answer, answered) = oneshot::channel();
        let closed = || KeepError::Failed("the store is closed".into());
        self.asks.send(Ask { id, at: Instant::now(), answer }).await.map_err(|_| closed())?;
        answered.await.unwrap_or_else(|_| Err(closed()))
    }
}

async fn run(connection: Arc<Connection>, mut asked: mpsc::Receiver<Ask>) {
    while let Some(first) = asked.recv().await {
        let why = match connection.link(Instant::now() + LINK_TIMEOUT).await {
            Ok(link) => stream(&connection, &link, first, &mut asked).await,
            Err(failure) => {
                let why = Arc::clone(failure.why());
                let _ = first.answer.send(Err(KeepError::Failed(Arc::clone(&why))));
                why
            }
        };
        // Those who asked meanwhile would only wait for the same.
        while let Ok(ask) = asked.try_recv() {
            let _ = ask.answer.send(Err(KeepError::Failed(Arc::clone(&why))));
        }
    }
}

/// Serves over one stream until that ends; returns why.
async fn stream(
    connection: &Connection,
    link: &Link,
    first: Ask,
    asked: &mut mpsc::Receiver<Ask>,
) -> Arc<str> {
    let mut leases = link.client().lease_client();
    let opened = tokio::select! {
        opened = timeout(connection.silence_max(), leases.keep_alive(first.id)) => opened,
        () = link.lost() => return fail([first], "the connection to etcd was lost".into()),
    };
    let (mut sender, mut answers) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(Error::LeaseKeepAliveError(_))) => {
            let _ = first.answer.send(Err(KeepError::Dead));
            return "a lease is dead".into();
        }
        Ok(Err(error)) => {
            let why = Arc::clone(Failure::from(error).why());
            connection.lose(link, &why);
            return fail([first], why);
        }
        Err(_) => {
            connection.lose(link, "no answer to a keep-alive");
            return fail([first], "etcd did not answer a keep-alive".into());
        }
    };
    // The opening's own answer does not say the TTL, so it is asked once more.
    let mut due: VecDeque<Ask> = VecDeque::new();
    let mut next = Some(first);
    let why: Arc<str> = loop {
        if let Some(ask) = next.take() {
            sender.id = ask.id;
            due.push_back(ask);
            if sender.keep_alive().await.is_err() {
                break ended(connection, link, "the keep-alive stream ended".into());
            }
        }
        let silent_from = due.front().map(|oldest| oldest.at);
        tokio::select! {
            biased;
            answer = answers.message() => match answer {
                Ok(Some(answer)) => tell(&mut due, &answer),
                Ok(None) => {
                    break ended(connection, link, "the keep-alive stream ended".into());
                }
                Err(error) => {
                    break ended(connection, link, Arc::clone(Failure::from(error).why()));
                }
            },
            () = link.lost() => break "the connection to etcd was lost".into(),
            () = silence(silent_from, connection.silence_max()) => {
                connection.lose(link, "keep-alives are not answered");
                break "etcd did not answer a keep-alive".into();
            }
            ask = asked.recv(), if due.len() < SENT_MAX => match ask {
                Some(ask) => next = Some(ask),
                None => break "the store is closed".into(),
            },
        }
    };
    fail(due, why)
}

/// The stream ends with its connection, mostly before any request notices: the
/// loss is told at once, so that what was granted over it is not reused.
fn ended(connection: &Connection, link: &Link, why: Arc<str>) -> Arc<str> {
    connection.lose(link, &why);
    why
}

/// Answers come in the order of the asks.
fn tell(due: &mut VecDeque<Ask>, answer: &LeaseKeepAliveResponse) {
    while let Some(ask) = due.pop_front() {
        if ask.id != answer.id() {
            let _ = ask.answer.send(Err(KeepError::Failed("the answer was left out".into())));
            continue;
        }
        let result = match u64::try_from(answer.ttl()) {
            Ok(ttl_s) if ttl_s > 0 => Ok(KeptAlive { ttl_s, sent: ask.at }),
            _ => Err(KeepError::Dead),
        };
        let _ = ask.answer.send(result);
        return;
    }
}

fn fail(asks: impl IntoIterator<Item = Ask>, why: Arc<str>) -> Arc<str> {
    for ask in asks {
        let _ = ask.answer.send(Err(KeepError::Failed(Arc::clone(&why))));
    }
    why
}

async fn silence(from: Option<Instant>, silence_max: Duration) {
    match from {
        Some(from) => sleep_until(from + silence_max).await,
        None => std::future::pending().await,
    }
}
