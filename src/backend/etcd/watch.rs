//! Keeps one queue's mirror: a watch, then a list, then the events.
//!
//! The watch starts at the current revision (one that starts in the past stalls
//! for up to 100 ms) and is created before the list is read, so nothing falls
//! between them. When it is lost or compacted it is opened and listed again.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use etcd_client::{EventType, GetOptions, TxnOp, TxnOpResponse, WatchOptions, WatchResponse};
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::error;

use super::{
    acquire::{as_etcd, revision},
    backend::Core,
    connection::{Link, delays},
    failure::{Failure, Refusal},
    keys::{EntryId, Part, range_end},
    queue::Queue,
};

/// How long a queue is watched on when nobody waits any more: in a hand-over
/// loop the next waiter comes at once.
const LINGER: Duration = Duration::from_secs(5);
/// How long a watch may take to be created.
const CREATE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the mirror is listed anew, in case an event was lost all the same
/// (trap 6).
const RELIST_INTERVAL: Duration = Duration::from_secs(60);
/// Keys a page of a list.
const PAGE_KEYS: i64 = 1_000;
/// A watch's answer may tell the end of every waiter at once.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A watch that etcd ends so soon may be ended each time.
const BRIEF: Duration = Duration::from_secs(1);
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Why a watch ended.
enum Ended {
    /// Nobody waits.
    Deserted,
    /// It is to be opened again.
    Again,
    /// It failed.
    Failed(Arc<str>),
}

/// Keeps the queue's mirror until nobody waits. A panic ends the waits that it
/// befell; nobody else would ever wake them.
pub(super) async fn keep(core: Arc<Core>, queue: Arc<Queue>) {
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
        let (mut was_live, opened) = (false, Instant::now());
        let ended = match core.connection.link(down_since + outage_max).await {
            Ok(link) => follow(core, queue, &link, &mut was_live).await,
            Err(failure) => Ended::Failed(Arc::clone(failure.why())),
        };
        queue.down();
        if was_live {
            down_since = Instant::now();
            delays_left = delays();
        }
        match ended {
            Ended::Deserted => {
                if core.queues.close(queue) {
                    return;
                }
            }
            Ended::Again if opened.elapsed() < BRIEF => sleep(RETRY_DELAY).await,
            Ended::Again => {}
            Ended::Failed(why) => {
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
    was_live: &mut bool,
) -> Ended {
    let range = core.keys.resource(&queue.resource);
    let mut client = link.client().watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
    let begun = Instant::now();
    let open = async {
        let options = WatchOptions::new().with_range(range_end(&range));
        let mut stream =
            client.watch(range.clone(), Some(options)).await.map_err(Failure::from)?;
        match stream.message().await.map_err(Failure::from)? {
            Some(created) if created.created() && !created.canceled() => Ok(stream),
            // Most likely its login has expired, which is told in several ways.
            Some(refused) => {
                let why = format!("etcd refused a watch: {}", refused.cancel_reason());
                core.connection.log_in_again(link, begun, begun + CREATE_TIMEOUT).await?;
                Err(Failure::Refused(Refusal::Login, why.into()))
            }
            None => Err(Failure::Unknown("etcd ended a watch".into())),
        }
    };
    let opened = tokio::select! {
        opened = timeout(CREATE_TIMEOUT, open) => opened,
        () = link.lost() => return Ended::Failed("the connection to etcd was lost".into()),
    };
    let mut stream = match opened {
        Ok(Ok(stream)) => stream,
        Ok(Err(failure)) => {
            if failure.is_passing() {
                core.connection.lose(link, failure.why());
            }
            return Ended::Failed(Arc::clone(failure.why()));
        }
        Err(_) => {
            core.connection.lose(link, "a watch was not created");
            return Ended::Failed("etcd did not create a watch".into());
        }
    };
    if let Err(failure) = list(core, queue, &range).await {
        return Ended::Failed(Arc::clone(failure.why()));
    }
    *was_live = true;
    let relist = Instant::now() + RELIST_INTERVAL;
    let mut deserted = None;
    loop {
        for ghost in queue.ghosts(|entry| core.sessions.is_own(entry)) {
            remove(core, queue, ghost);
        }
        deserted = match queue.is_deserted() {
            true => deserted.or(Some(Instant::now() + LINGER)),
            false => None,
        };
        tokio::select! {
            biased;
            answer = stream.message() => match answer {
                Ok(Some(answer)) if !answer.canceled() => apply(core, queue, &answer),
                // Compacted, for one.
                Ok(_) => return Ended::Again,
                Err(error) => {
                    let failure = Failure::from(error);
                    core.connection.lose(link, failure.why());
                    return Ended::Failed(Arc::clone(failure.why()));
                }
            },
            () = link.lost() => return Ended::Failed("the connection to etcd was lost".into()),
            () = queue.stirred.notified() => {}
            () = sleep_until(deserted.unwrap_or(relist)) => {
                return if deserted.is_some() { Ended::Deserted } else { Ended::Again };
            }
        }
    }
}

/// Lists the resource's keys at one revision, page by page.
async fn list(core: &Core, queue: &Queue, range: &str) -> Result<(), Failure> {
    let until = Instant::now() + core.settings.operation_timeout;
    let number = queue.lists();
    let (mut holder, mut entries) = (None, Vec::new());
    let (mut from, mut at) = (range.as_bytes().to_vec(), 0_u64);
    loop {
        let options = GetOptions::new()
            .with_range(range_end(range))
            .with_keys_only()
            .with_limit(PAGE_KEYS)
            .with_revision(as_etcd(at));
        let read = core.connection.read(vec![TxnOp::get(from, Some(options))], until).await?;
        if at == 0 {
            at = read.header().map(|header| revision(header.revision())).unwrap_or_default();
        }
        let responses = read.op_responses();
        let Some(TxnOpResponse::Get(page)) = responses.first() else {
            return Err(Failure::Unknown("etcd answered something else".into()));
        };
        for pair in page.kvs() {
            match core.keys.part(&queue.resource, pair.key()) {
                Part::Holder => holder = Some(revision(pair.mod_revision())),
                Part::Entry(entry) => entries.push((entry, revision(pair.create_revision()))),
                Part::Other => {}
            }
        }
        match page.kvs().last() {
            Some(last) if page.more() => {
                from = last.key().to_vec();
                from.push(0);
            }
            _ => break,
        }
    }
    queue.listed(number, at, holder, entries);
    Ok(())
}

fn apply(core: &Core, queue: &Queue, answer: &WatchResponse) {
    let events = answer.events().iter().filter_map(|event| {
        let pair = event.kv()?;
        let part = core.keys.part(&queue.resource, pair.key());
        Some((event.event_type() == EventType::Put, part, revision(pair.mod_revision())))
    });
    let events: Vec<_> = events.collect();
    let upto = events.iter().map(|(.., at)| *at).max().unwrap_or_default();
    queue.apply(upto, events);
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
