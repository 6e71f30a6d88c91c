//! The task of a watch stream.
//!
//! It sends the requests and reads the answers. Events go from here straight to the
//! queue that they are for, so a hand-over passes through one task.

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
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error};

use crate::backend::etcd::{
    client::{connection::Link, failure::Failure},
    keys::range_end,
    queue::{
        waiters::{Event, Queue},
        watch::stream::{End, Status, Stream, Wanted, WatchStreams},
    },
    verbs::acquire::revision,
};

/// Requests that were sent and not answered. The client library holds 100 for a stream
/// before sending has to wait; sending must not wait, because etcd reads no further
/// requests while its answers are not read.
const UNANSWERED_MAX: usize = 64;
/// One answer may tell the end of every waiter.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a read may take that renews an expired token.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The watches of a stream, by their IDs.
#[derive(Default)]
struct Watches {
    all: HashMap<i64, Wanted>,
    /// Those that etcd is to create, in the order of the requests, which is that of
    /// the answers: a refusal does not name its watch.
    creating: VecDeque<i64>,
    /// Those that etcd was asked to cancel.
    cancelling: HashSet<i64>,
    /// Whether etcd refused one. The stream then serves those that it has, and sends no
    /// more requests: its token may have expired, and some releases of etcd 3.4 read no
    /// requests after a refusal.
    retired: bool,
}

/// Serves a stream until nobody watches over it any more, or until it ends.
pub(crate) async fn run(streams: Arc<WatchStreams>, stream: Arc<Stream>) {
    let mut watches = Watches::default();
    let served = AssertUnwindSafe(serve(&streams, &stream, &mut watches)).catch_unwind().await;
    let end = served.unwrap_or_else(|_| {
        error!("a watch stream panicked; this is a defect");
        End::Cancelled
    });
    let wanted = stream.close();
    for watch in watches.all.into_values().chain(wanted) {
        watch.status.send_replace(Status::Ended(end.clone()));
    }
}

async fn serve(streams: &WatchStreams, stream: &Stream, watches: &mut Watches) -> End {
    let Some(first) = stream.next_wanted() else { return End::Cancelled };
    let (mut requests, mut answers) = match open(streams, stream, watches, first).await {
        Ok(opened) => opened,
        Err(end) => return end,
    };
    let (connection, link) = (&streams.connection, &stream.link);
    // When the last answer came, or the first request that is due for one was sent.
    let mut heard = Instant::now();
    loop {
        if watches.unanswered() == 0 {
            heard = Instant::now();
        }
        let sent = watches.send(streams, stream, &mut requests).await;
        if sent.is_err() {
            return End::Cancelled;
        }
        if watches.all.is_empty() && stream.close_if_idle() {
            return End::Cancelled;
        }
        let silent = (watches.unanswered() > 0).then(|| heard + connection.silence_max());
        tokio::select! {
            biased;
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    heard = Instant::now();
                    let sent = watches.answered(streams, stream, &mut requests, &answer).await;
                    if sent.is_err() {
                        return End::Cancelled;
                    }
                }
                Ok(None) => return End::Cancelled,
                Err(error) => return failed(streams, link, error),
            },
            () = link.lost() => return lost(),
            () = stream.stirred.notified() => {}
            () = sleep_until(silent.unwrap_or(heard)), if silent.is_some() => {
                connection.lose(link, "a watch was not created");
                return lost();
            }
        }
    }
}

/// Opens the stream with its first watch.
async fn open(
    streams: &WatchStreams,
    stream: &Stream,
    watches: &mut Watches,
    first: Wanted,
) -> Result<(WatchRequestSender, WatchResponseStream), End> {
    let (connection, link) = (&streams.connection, &stream.link);
    let (range, options) = request(streams, &first);
    watches.ask(first);
    if streams.refused.swap(false, Ordering::Relaxed) {
        // The refusal of a watch renews no token, that of a read does.
        let _ = connection.check(Instant::now() + CHECK_TIMEOUT).await;
    }
    let mut client = link.client().watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
    let opened = tokio::select! {
        opened = timeout(connection.silence_max(), client.watch(range, Some(options))) => opened,
        () = link.lost() => return Err(lost()),
    };
    match opened {
        Ok(Ok(opened)) => Ok(opened.split()),
        Ok(Err(error)) => Err(failed(streams, link, error)),
        Err(_) => {
            connection.lose(link, "a watch stream was not opened");
            Err(lost())
        }
    }
}

fn request(streams: &WatchStreams, watch: &Wanted) -> (String, WatchOptions) {
    let range = streams.keys.resource(&watch.queue.resource);
    let options = WatchOptions::new().with_range(range_end(&range)).with_watch_id(watch.id);
    (range, options)
}

fn failed(streams: &WatchStreams, link: &Link, error: etcd_client::Error) -> End {
    let failure = Failure::from(error);
    if !failure.is_passing() {
        streams.refused.store(true, Ordering::Relaxed);
    }
    streams.connection.failed(link, &failure);
    End::Failed(Arc::clone(failure.why()))
}

fn lost() -> End {
    End::Failed("the connection to etcd was lost".into())
}

impl Watches {
    fn unanswered(&self) -> usize {
        self.creating.len() + self.cancelling.len()
    }

    /// Notes that etcd is asked for a watch.
    fn ask(&mut self, watch: Wanted) {
        self.creating.push_back(watch.id);
        self.all.insert(watch.id, watch);
    }

    /// Sends what there is to send, as far as there is room for it.
    async fn send(
        &mut self,
        streams: &WatchStreams,
        stream: &Stream,
        requests: &mut WatchRequestSender,
    ) -> Result<(), etcd_client::Error> {
        while self.retired || self.unanswered() < UNANSWERED_MAX {
            if let Some(id) = stream.next_dropped() {
                // One that etcd has not created yet is cancelled when it has.
                if self.is_created(id) {
                    self.cancel(id, requests).await?;
                }
            } else if !self.retired
                && let Some(watch) = stream.next_wanted()
            {
                let (range, options) = request(streams, &watch);
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
        streams: &WatchStreams,
        stream: &Stream,
        requests: &mut WatchRequestSender,
        answer: &WatchResponse,
    ) -> Result<(), etcd_client::Error> {
        let id = answer.watch_id();
        if answer.created() {
            // After a refusal those that were not answered are no longer waited for.
            let Some(id) = self.creating.pop_front() else { return Ok(()) };
            if answer.canceled() {
                self.refused(streams, stream, id, answer.cancel_reason());
            } else if let Some(watch) = self.all.get(&id) {
                watch.status.send_replace(Status::Created);
                if watch.status.is_closed() {
                    self.cancel(id, requests).await?;
                }
            }
        } else if answer.canceled() {
            // By our request, or by etcd itself: what was compacted away, for one.
            if !self.cancelling.remove(&id) {
                self.end(id, End::Cancelled);
            }
        } else if let Some(watch) = self.all.get(&id) {
            apply(streams, &watch.queue, id, answer);
        }
        Ok(())
    }

    /// Ends a watch that etcd refused, and gives those that are not created yet back,
    /// for another stream.
    fn refused(&mut self, streams: &WatchStreams, stream: &Stream, id: i64, why: &str) {
        debug!(why, "etcd refused a watch; the next one goes over another stream");
        self.end(id, End::Failed(format!("etcd refused a watch: {why}").into()));
        streams.refused.store(true, Ordering::Relaxed);
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

fn apply(streams: &WatchStreams, queue: &Queue, id: i64, answer: &WatchResponse) {
    let events = answer.events().iter().filter_map(|event| {
        let pair = event.kv()?;
        Some(Event {
            put: event.event_type() == EventType::Put,
            part: streams.keys.part(&queue.resource, pair.key()),
            at: revision(pair.mod_revision()),
        })
    });
    queue.apply(id, events.collect());
}
