//! The task of a watch stream.
//!
//! It sends the requests and reads the answers. It applies events to their queue directly,
//! so that a hand-over passes through one task only.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_client::{
    EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures_util::FutureExt as _;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tracing::{debug, error};

use crate::{
    client::{failure::Failure, link::Link, silence::LastAnswer},
    keys::range_end,
    queue::{
        waiters::{Event, Queue},
        watch::stream::{Ask, Asked, End, Shared, Status, Wanted},
    },
    revision::Revision,
};

/// Requests that may be sent and not answered. The client library buffers 100 for a stream
/// before sending has to wait. Sending must not wait, because etcd reads no more requests
/// while its answers are not read.
const UNANSWERED_MAX: usize = 64;
/// One answer may have the deletions of all waiters' entries.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long the read that renews an expired login may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The watches of a stream, by their IDs.
#[derive(Default)]
struct Watches {
    all: HashMap<i64, Wanted>,
    /// Watches that etcd was asked to create. Answers come in the order of the requests; a
    /// refusal does not name its watch.
    creating: VecDeque<i64>,
    /// Watches that etcd was asked to cancel.
    cancelling: HashSet<i64>,
    /// Whether etcd refused a watch. The stream then serves the watches that it has and sends
    /// no more requests: its login may have expired, and some releases of etcd 3.4 read no
    /// requests after a refusal.
    retired: Arc<AtomicBool>,
}

/// Serves a stream until it ends, or until nobody uses it any more.
pub(crate) async fn run(shared: Arc<Shared>, asked: Asked) {
    let Asked { link, mut asks, retired } = asked;
    let mut watches = Watches { retired, ..Watches::default() };
    let serve = AssertUnwindSafe(serve(&shared, &link, &mut asks, &mut watches));
    let end = serve.catch_unwind().await.unwrap_or_else(|_| {
        error!("a watch stream panicked; this is a defect");
        End::Cancelled
    });
    asks.close();
    while let Ok(ask) = asks.try_recv() {
        watches.all.extend(ask.wanted().map(|wanted| (wanted.id, wanted)));
    }
    for watch in watches.all.into_values() {
        watch.status.send_replace(Status::Ended(end.clone()));
    }
}

async fn serve(
    shared: &Shared,
    link: &Link,
    asks: &mut mpsc::Receiver<Ask>,
    watches: &mut Watches,
) -> End {
    let Some(first) = asks.recv().await.and_then(Ask::wanted) else { return End::Cancelled };
    let (mut requests, mut answers) = match open(shared, link, watches, first).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let connection = &shared.etcd.connection;
    let last_answer = LastAnswer::new();
    loop {
        let unanswered = watches.creating.len() + watches.cancelling.len();
        if unanswered == 0 {
            // No answer is due, so the silence before this does not count.
            last_answer.note();
        }
        let sent = tokio::select! {
            biased;
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    last_answer.note();
                    watches.answered(shared, &mut requests, &answer).await
                }
                Ok(None) => return End::Cancelled,
                Err(error) => return failed(shared, link, error),
            },
            () = link.lost() => return lost(),
            ask = asks.recv(), if unanswered < UNANSWERED_MAX => match ask {
                Some(Ask::Create(wanted)) => watches.create(shared, &mut requests, wanted).await,
                Some(Ask::Cancel(id)) => watches.dropped(&mut requests, id).await,
                None => return End::Cancelled,
            },
            () = last_answer.silence(last_answer.at(), connection.silence_max()),
                if unanswered > 0 =>
            {
                connection.lose(link, "a watch was not created");
                return lost();
            }
        };
        if sent.is_err() {
            return End::Cancelled;
        }
    }
}

/// Opens the stream with its first watch.
async fn open(
    shared: &Shared,
    link: &Link,
    watches: &mut Watches,
    first: Wanted,
) -> Result<(WatchRequestSender, WatchResponseStream), End> {
    let connection = &shared.etcd.connection;
    let (range, options) = request(shared, &first);
    watches.ask(first);
    if shared.refused.swap(false, Ordering::Relaxed) {
        // A read renews an expired login, a watch does not.
        let _ = connection.check(Instant::now() + CHECK_TIMEOUT).await;
    }
    let mut client = link.client().watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
    let opened = tokio::select! {
        opened = timeout(connection.silence_max(), client.watch(range, Some(options))) => opened,
        () = link.lost() => return Err(lost()),
    };
    match opened {
        Ok(Ok(opened)) => Ok(opened.split()),
        Ok(Err(error)) => Err(failed(shared, link, error)),
        Err(_) => {
            connection.lose(link, "a watch stream was not opened");
            Err(lost())
        }
    }
}

fn request(shared: &Shared, watch: &Wanted) -> (String, WatchOptions) {
    let range = shared.etcd.keys.resource(&watch.queue.resource);
    let options = WatchOptions::new().with_range(range_end(&range)).with_watch_id(watch.id);
    (range, options)
}

fn failed(shared: &Shared, link: &Link, error: etcd_client::Error) -> End {
    let failure = Failure::from(error);
    if !failure.is_passing() {
        shared.refused.store(true, Ordering::Relaxed);
    }
    shared.etcd.connection.failed(link, &failure);
    End::Failed(Arc::clone(failure.why()))
}

fn lost() -> End {
    End::Failed("the connection to etcd was lost".into())
}

impl Watches {
    /// Notes that etcd is asked to create a watch.
    fn ask(&mut self, watch: Wanted) {
        self.creating.push_back(watch.id);
        self.all.insert(watch.id, watch);
    }

    /// Asks etcd to create a watch, if its handle still exists.
    async fn create(
        &mut self,
        shared: &Shared,
        requests: &mut WatchRequestSender,
        watch: Wanted,
    ) -> Result<(), etcd_client::Error> {
        if watch.status.is_closed() {
            return Ok(());
        }
        if self.is_retired() {
            watch.status.send_replace(Status::Ended(End::Cancelled));
            return Ok(());
        }
        let (range, options) = request(shared, &watch);
        self.ask(watch);
        requests.watch(range, Some(options)).await
    }

    /// Cancels a watch whose handle was dropped. One that etcd has not created yet is cancelled
    /// once it has.
    async fn dropped(
        &mut self,
        requests: &mut WatchRequestSender,
        id: i64,
    ) -> Result<(), etcd_client::Error> {
        let is_created = |watch: &Wanted| matches!(*watch.status.borrow(), Status::Created);
        if !self.all.get(&id).is_some_and(is_created) {
            return Ok(());
        }
        self.all.remove(&id);
        if self.is_retired() {
            return Ok(());
        }
        self.cancelling.insert(id);
        requests.cancel(id).await
    }

    /// Takes an answer.
    async fn answered(
        &mut self,
        shared: &Shared,
        requests: &mut WatchRequestSender,
        answer: &WatchResponse,
    ) -> Result<(), etcd_client::Error> {
        let id = answer.watch_id();
        if answer.created() {
            // After a refusal the other answers are not waited for.
            let Some(id) = self.creating.pop_front() else { return Ok(()) };
            if answer.canceled() {
                self.refused(shared, id, answer.cancel_reason());
            } else if let Some(watch) = self.all.get(&id) {
                watch.status.send_replace(Status::Created);
                if watch.status.is_closed() {
                    self.dropped(requests, id).await?;
                }
            }
        } else if answer.canceled() {
            // By our request, or by etcd itself: because of a compaction, for example.
            if !self.cancelling.remove(&id) {
                self.end(id, End::Cancelled);
            }
        } else if let Some(watch) = self.all.get(&id) {
            apply(shared, &watch.queue, id, answer);
        }
        Ok(())
    }

    /// Ends a watch that etcd refused, and also those that are not created yet, which will be
    /// asked for on another stream.
    fn refused(&mut self, shared: &Shared, id: i64, why: &str) {
        debug!(why, "etcd refused a watch; the next one goes over another stream");
        self.end(id, End::Failed(format!("etcd refused a watch: {why}").into()));
        shared.refused.store(true, Ordering::Relaxed);
        self.retired.store(true, Ordering::Relaxed);
        self.cancelling.clear();
        for id in std::mem::take(&mut self.creating) {
            self.end(id, End::Cancelled);
        }
    }

    fn end(&mut self, id: i64, end: End) {
        if let Some(watch) = self.all.remove(&id) {
            watch.status.send_replace(Status::Ended(end));
        }
    }

    fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }
}

fn apply(shared: &Shared, queue: &Queue, id: i64, answer: &WatchResponse) {
    let events = answer.events().iter().filter_map(|event| {
        let pair = event.kv()?;
        Some(Event {
            put: event.event_type() == EventType::Put,
            part: shared.etcd.keys.part(&queue.resource, pair.key()),
            at: Revision::from_etcd(pair.mod_revision()),
        })
    });
    queue.apply(id, events.collect());
}
