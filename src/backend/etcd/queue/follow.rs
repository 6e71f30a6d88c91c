//! Keeps one queue's mirror: a watch, then a list, then the events.
//!
//! The watch starts at the current revision (one that starts in the past stalls
//! for up to 100 ms) and is created before the list is read, so nothing falls
//! between them. When it is lost or compacted it is created and listed again.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::error;

use crate::backend::etcd::{
    client::{
        connection::{Link, delays},
        failure::Failure,
    },
    core::Core,
    keys::EntryId,
    queue::{
        list,
        waiters::Queue,
        watch::stream::{End, Watch},
    },
};

/// How long a queue is watched on when nobody waits any more: in a hand-over
/// loop the next waiter comes at once.
const LINGER: Duration = Duration::from_secs(5);
/// How often the mirror is listed anew, in case an event was lost all the same
/// (trap 6); up to a quarter later, so that queues that were first listed together,
/// after a reconnect, are not listed together ever after.
const RELIST_INTERVAL: Duration = Duration::from_secs(60);
/// A watch that ends so soon may end so each time.
const BRIEF: Duration = Duration::from_secs(1);
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Why a queue is not followed any more.
enum Stop {
    /// Nobody waits.
    Deserted,
    /// The watch ended.
    Watch(End),
}

/// How far following a queue came over one connection.
#[derive(Default)]
struct Progress {
    /// The watch was created: etcd was there.
    watched: bool,
    /// The mirror was filled.
    live: bool,
}

/// Keeps the queue's mirror until nobody waits. A panic ends the waits that it
/// befell; nobody else would ever wake them.
pub(crate) async fn keep(core: Arc<Core>, queue: Arc<Queue>) {
    while AssertUnwindSafe(keep_up(&core, &queue)).catch_unwind().await.is_err() {
        error!("the watch of a queue panicked; this is a defect");
        queue.down();
        queue.fail(&"the watch of the queue failed".into());
        sleep(RETRY_DELAY).await;
        if core.queues.close(&queue) {
            return;
        }
    }
}

async fn keep_up(core: &Arc<Core>, queue: &Arc<Queue>) {
    let outage_max = core.settings.operation_timeout;
    let mut down_since = Instant::now();
    let mut delays_left = delays();
    loop {
        let (mut progress, opened) = (Progress::default(), Instant::now());
        let ended = match core.connection.link(down_since + outage_max).await {
            Ok(link) => {
                let ended = follow(core, queue, &link, &mut progress).await;
                // Another outage, then, though the mirror was not filled in between.
                progress.live |= progress.watched && link.is_lost();
                ended
            }
            Err(failure) => failed(&failure),
        };
        queue.down();
        if progress.live {
            down_since = Instant::now();
            delays_left = delays();
        }
        match ended {
            Stop::Deserted => {
                if core.queues.close(queue) {
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
                    if core.queues.close(queue) {
                        return;
                    }
                    // What waits now is told; who comes later gets another try.
                    sleep(RETRY_DELAY).await;
                    down_since = Instant::now().checked_sub(outage_max).unwrap_or(down_since)
                        + RETRY_DELAY;
                } else {
                    sleep(delays_left.next().unwrap_or(RETRY_DELAY)).await;
                }
            }
        }
    }
}

async fn follow(
    core: &Arc<Core>,
    queue: &Arc<Queue>,
    link: &Arc<Link>,
    progress: &mut Progress,
) -> Stop {
    let mut watch = core.watches.watch(link, queue);
    if let Err(end) = watch.created().await {
        return Stop::Watch(end);
    }
    progress.watched = true;
    let mut deserted = None;
    loop {
        if let Err(ended) = list(core, queue, &mut watch).await {
            return ended;
        }
        progress.live = true;
        let jitter = RELIST_INTERVAL.mul_f64(fastrand::f64() / 4.0);
        let relist = Instant::now() + RELIST_INTERVAL + jitter;
        while Instant::now() < relist {
            for ghost in queue.ghosts() {
                remove(core, queue, ghost);
            }
            deserted = match queue.is_deserted() {
                true => deserted.or(Some(Instant::now() + LINGER)),
                false => None,
            };
            tokio::select! {
                biased;
                end = watch.ended() => return Stop::Watch(end),
                () = queue.stirred.notified() => {}
                () = sleep_until(deserted.unwrap_or(relist)) => {
                    if deserted.is_some() {
                        return Stop::Deserted;
                    }
                }
            }
        }
    }
}

async fn list(core: &Core, queue: &Queue, watch: &mut Watch) -> Result<(), Stop> {
    tokio::select! {
        biased;
        end = watch.ended() => Err(Stop::Watch(end)),
        listed = list::fill(core, queue) => listed.map_err(|failure| failed(&failure)),
    }
}

fn failed(failure: &Failure) -> Stop {
    Stop::Watch(End::Failed(Arc::clone(failure.why())))
}

fn remove(core: &Arc<Core>, queue: &Arc<Queue>, ghost: EntryId) {
    let (core, queue) = (Arc::clone(core), Arc::clone(queue));
    core.clone().background.spawn(async move {
        let key = core.keys.entry(&queue.resource, &ghost);
        if core.sessions.delete_entry(&key, core.step_until()).await.is_err() {
            sleep(RETRY_DELAY).await;
            queue.still_there(&ghost);
            queue.stirred.notify_one();
        }
    });
}
