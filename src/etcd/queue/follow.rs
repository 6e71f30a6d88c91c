//! Keeps the mirrors of queues up to date: each by a watch, a list, then the events.
//!
//! A watch starts at the current revision, because one that starts in the past stalls for up
//! to 100 ms. It is created before the list is read, so that no event falls between them.
//! When it is lost or compacted, it is created again, and the queue is listed again.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use leasehold_lock::{BackendError, ResourceId};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::error;

use crate::{
    client::{connection::delays, failure::Failure, link::Link},
    keys::EntryId,
    queue::{
        list,
        place::Place,
        queues::Queues,
        waiters::Queue,
        watch::stream::{End, Watch},
    },
};

/// How long a queue is followed when nobody waits any more: when a lock is handed from one
/// waiter to the next, another waiter often comes at once.
const LINGER: Duration = Duration::from_secs(5);
/// How often a queue is listed again, in case an event was lost (trap 6). Up to a quarter is
/// added, so that queues that were listed together after a reconnect do not stay together.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);
/// If a watch ends sooner than this, the next one may do so too.
const BRIEF: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Why a queue is not followed any more.
enum Stop {
    /// There are no waiters.
    Deserted,
    /// The watch ended.
    Watch(End),
}

/// How far following a queue came over one connection.
#[derive(Default)]
struct Progress {
    /// The watch was created, so etcd was available.
    watched: bool,
    /// The mirror was filled.
    live: bool,
}

impl Queues {
    /// Takes a place in the resource's queue, and follows the queue if nobody does yet.
    pub(crate) fn join(self: &Arc<Self>, resource: &ResourceId) -> Result<Place, BackendError> {
        let (place, new) = self.take_place(resource)?;
        if let Some(queue) = new {
            self.etcd.background.spawn(keep(Arc::clone(self), queue));
        }
        Ok(place)
    }
}

/// Keeps the queue's mirror until nobody waits. A panic ends the current waits, because
/// nobody else would ever wake them.
async fn keep(queues: Arc<Queues>, queue: Arc<Queue>) {
    while AssertUnwindSafe(keep_up(&queues, &queue)).catch_unwind().await.is_err() {
        error!("following a queue panicked; this is a defect");
        queue.down();
        queue.fail(&"following the queue failed".into());
        sleep(RETRY_DELAY).await;
        if queues.close(&queue) {
            return;
        }
    }
}

async fn keep_up(queues: &Arc<Queues>, queue: &Arc<Queue>) {
    let outage_max = queues.settings.operation_timeout;
    let mut down_since = Instant::now();
    let mut retry_delays = delays();
    loop {
        let (mut progress, opened) = (Progress::default(), Instant::now());
        let ended = match queues.etcd.connection.link(down_since + outage_max).await {
            Ok(link) => {
                let ended = follow(queues, queue, &link, &mut progress).await;
                // etcd was available in between, so this is another outage, although the
                // mirror was not filled.
                progress.live |= progress.watched && link.is_lost();
                ended
            }
            Err(failure) => failed(&failure),
        };
        queue.down();
        if progress.live {
            down_since = Instant::now();
            retry_delays = delays();
        }
        match ended {
            Stop::Deserted => {
                if queues.close(queue) {
                    return;
                }
            }
            Stop::Watch(End::Cancelled) if opened.elapsed() < BRIEF => {
                sleep(RETRY_DELAY).await;
            }
            Stop::Watch(End::Cancelled) => {}
            Stop::Watch(End::Failed(why)) => {
                if Instant::now() >= down_since + outage_max {
                    queue.fail(&why);
                    if queues.close(queue) {
                        return;
                    }
                    // The current waits end; who comes later gets another try.
                    sleep(RETRY_DELAY).await;
                    down_since = Instant::now().checked_sub(outage_max).unwrap_or(down_since)
                        + RETRY_DELAY;
                } else {
                    retry_delays.pause().await;
                }
            }
        }
    }
}

async fn follow(
    queues: &Arc<Queues>,
    queue: &Arc<Queue>,
    link: &Arc<Link>,
    progress: &mut Progress,
) -> Stop {
    let mut watch = queues.watches.watch(link, queue);
    if let Err(end) = watch.created().await {
        return Stop::Watch(end);
    }
    progress.watched = true;
    let mut linger_until = None;
    loop {
        if let Err(ended) = fill(queues, queue, &mut watch).await {
            return ended;
        }
        progress.live = true;
        let jitter = RELIST_INTERVAL.mul_f64(fastrand::f64() / 4.0);
        let relist = Instant::now() + RELIST_INTERVAL + jitter;
        while Instant::now() < relist {
            for orphan in queue.take_orphans() {
                remove(queues, queue, orphan);
            }
            linger_until = match queue.is_deserted() {
                true => linger_until.or(Some(Instant::now() + LINGER)),
                false => None,
            };
            tokio::select! {
                biased;
                end = watch.ended() => return Stop::Watch(end),
                () = queue.changed.notified() => {}
                () = sleep_until(linger_until.unwrap_or(relist)) => {
                    if linger_until.is_some() {
                        return Stop::Deserted;
                    }
                }
            }
        }
    }
}

async fn fill(queues: &Queues, queue: &Queue, watch: &mut Watch) -> Result<(), Stop> {
    tokio::select! {
        biased;
        end = watch.ended() => Err(Stop::Watch(end)),
        filled = list::fill(queues, queue) => filled.map_err(|failure| failed(&failure)),
    }
}

fn failed(failure: &Failure) -> Stop {
    Stop::Watch(End::Failed(Arc::clone(failure.why())))
}

/// Removes an entry that nobody waits with.
fn remove(queues: &Arc<Queues>, queue: &Arc<Queue>, orphan: EntryId) {
    let (queues, queue) = (Arc::clone(queues), Arc::clone(queue));
    queues.etcd.background.clone().spawn(async move {
        let key = queues.etcd.keys.entry(&queue.resource, &orphan);
        let until = Instant::now() + queues.settings.operation_timeout;
        if queues.sessions.delete_entry(&key, until).await.is_err() {
            sleep(RETRY_DELAY).await;
            queue.put_back_orphan(&orphan);
        }
    });
}
