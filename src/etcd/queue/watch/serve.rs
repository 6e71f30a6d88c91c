//! The task of a watch stream.
//!
//! It sends the requests and reads the answers. It applies events to their queue directly,
//! so that a hand-over passes through one task only.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use etcd_client::{
    EventType, WatchOptions, WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout};
use tracing::{debug, error};

use crate::{
    client::{failure::Failure, link::Link, silence::LastAnswer},
    keys::range_end,
    queue::{
        waiters::{Event, Queue},
        watch::stream::{End, Shared, Status, Stream, Wanted},
    },
    revision::Revision,
};

/// Requests that may be sent and not answered. The client library buffers 100 for a stream
/// before sending has to wait. Sending must not wait, because etcd reads no more requests
/// while its answers are not read.
const UNANSWERED_MAX: usize = 64;
/// One answer may tell the deletion of every waiter's entry.
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
    retired: bool,
}

/// Serves a stream until it ends, or until nobody uses it any more.
pub(crate) async fn run(shared: Arc<Shared>, stream: Arc<Stream>) {
    let mut watches = Watches::default();
    let served = AssertUnwindSafe(serve(&shared, &stream, &mut watches)).catch_unwind().await;
    let end = served.unwrap_or_else(|_| {
        error!("a watch stream panicked; this is a defect");
        End::Cancelled
    });
    let wanted = stream.close();
    for watch in watches.all.into_values().chain(wanted) {
        watch.status.send_replace(Status::Ended(end.clone()));
    }
}

async fn serve(shared: &Shared, stream: &Stream, watches: &mut Watches) -> End {
    let Some(first) = stream.next_wanted() else { return End::Cancelled };
    let (mut requests, mut answers) = match open(shared, stream, watches, first).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let (connection, link) = (&shared.etcd.connection, &stream.link);
    let last_answer = LastAnswer::new();
    loop {
        if watches.unanswered() == 0 {
            // No answer is due, so the silence before this does not count.
            last_answer.note();
        }
        let sent = watches.send(shared, stream, &mut requests).await;
        if sent.is_err() {
            return End::Cancelled;
        }
        if watches.all.is_empty() && stream.close_if_idle() {
            return End::Cancelled;
        }
        let is_answer_due = watches.unanswered() > 0;
        tokio::select! {
            biased;
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    last_answer.note();
                    let sent = watches.answered(shared, stream, &mut requests, &answer).await;
                    if sent.is_err() {
                        return End::Cancelled;
                    }
                }
                Ok(None) => return End::Cancelled,
                Err(error) => return failed(shared, link, error),
            },
            () = link.lost() => return lost(),
            () = stream.woken.notified() => {}
            () = last_answer.silence(last_answer.at(), connection.silence_max()),
                if is_answer_due =>
            {
                connection.lose(link, "a watch was not created");
                return lost();
            }
        }
    }
}

/// Opens the stream with its first watch.
async fn open(
    shared: &Shared,
    stream: &Stream,
    watches: &mut Watches,
    first: Wanted,
) -> Result<(WatchRequestSender, WatchResponseStream), End> {
    let (connection, link) = (&shared.etcd.connection, &stream.link);
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
    fn unanswered(&self) -> usize {
        self.creating.len() + self.cancelling.len()
    }

    /// Notes that etcd is asked to create a watch.
    fn ask(&mut self, watch: Wanted) {
        self.creating.push_back(watch.id);
        self.all.insert(watch.id, watch);
    }

    /// Sends the requests that there is room for.
    async fn send(
        &mut self,
        shared: &Shared,
        stream: &Stream,
        requests: &mut WatchRequestSender,
    ) -> Result<(), etcd_client::Error> {
        while self.retired || self.unanswered() < UNANSWERED_MAX {
            if let Some(id) = stream.next_dropped() {
                // A watch that etcd has not created yet is cancelled once it has.
                if self.is_created(id) {
                    self.cancel(id, requests).await?;
                }
            } else if !self.retired
                && let Some(watch) = stream.next_wanted()
            {
                let (range, options) = request(shared, &watch);
                self.ask(watch);
                requests.watch(range, Some(options)).await?;
            } else {
                break;
            }
        }
        Ok(())
    }

    async fn cancel(
        &mut self,
        id: i64,
        requests: &mut WatchRequestSender,
    ) -> Result<(), etcd_client::Error> {
        self.all.remove(&id);
        if self.retired {
            return Ok(());
        }
        self.cancelling.insert(id);
        requests.cancel(id).await
    }

    /// Takes an answer.
    async fn answered(
        &mut self,
        shared: &Shared,
        stream: &Stream,
        requests: &mut WatchRequestSender,
        answer: &WatchResponse,
    ) -> Result<(), etcd_client::Error> {
        let id = answer.watch_id();
        if answer.created() {
            // After a refusal the other answers are not waited for.
            let Some(id) = self.creating.pop_front() else { return Ok(()) };
            if answer.canceled() {
                self.refused(shared, stream, id, answer.cancel_reason());
            } else if let Some(watch) = self.all.get(&id) {
                watch.status.send_replace(Status::Created);
                if watch.status.is_closed() {
                    self.cancel(id, requests).await?;
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
    fn refused(&mut self, shared: &Shared, stream: &Stream, id: i64, why: &str) {
        debug!(why, "etcd refused a watch; the next one goes over another stream");
        self.end(id, End::Failed(format!("etcd refused a watch: {why}").into()));
        shared.refused.store(true, Ordering::Relaxed);
        self.retired = true;
        self.cancelling.clear();
        for id in std::mem::take(&mut self.creating) {
            self.end(id, End::Cancelled);
        }
        for watch in stream.close() {
            watch.status.send_replace(Status::Ended(End::Cancelled));
        }
    }

    fn end(&mut self, id: i64, end: End) {
        if let Some(watch) = self.all.remove(&id) {
            watch.status.send_replace(Status::Ended(end));
        }
    }

    fn is_created(&self, id: i64) -> bool {
        let is_created = |watch: &Wanted| matches!(*watch.status.borrow(), Status::Created);
        self.all.get(&id).is_some_and(is_created)
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
