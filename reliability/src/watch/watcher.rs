//! Watching every leasehold process of a run, and the comparison at its end.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use leasehold_proto::{
    components::{FeaturesRequest, LockMode, LockRequest, UnlockRequest},
    locks::{ListLocksRequest, LockScope, WatchLocksRequest},
};
use parking_lot::Mutex;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{Held, Table, Words};
use crate::client::{Process, process, to_instance};

/// The feature of stores that can be watched.
const WATCH: &str = "WATCH";
/// The feature of stores with shared locks.
const SHARED: &str = "SHARED";
/// The prefix of locks that are held during the comparison.
const OWN: &str = "watched/";
/// How many of those are held exclusively; as many are held by two readers, if there are any.
const OWN_OF_EACH_MODE: usize = 3;
const OWN_TTL_S: i64 = 60;
const AGAIN: Duration = Duration::from_millis(100);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How soon a quiet store's watch and list must agree: the longest TTL that is left to
/// expire, and what a backend may add.
const SAME_WITHIN: Duration = Duration::from_secs(40);

/// The events of one watch.
#[derive(Debug, Default)]
struct Watched {
    table: Table,
    words: Words,
}

/// A watch of each leasehold process.
#[derive(Debug)]
pub struct Watchers {
    processes: Vec<Process>,
    prefix: String,
    has_readers: bool,
    watched: Vec<Arc<Mutex<Watched>>>,
    watching: Vec<AbortHandle>,
    _tasks: JoinSet<()>,
}

impl Watchers {
    /// Watches the locks whose names begin with `prefix`; `None` if the store cannot be
    /// watched.
    pub async fn start(sockets: &[PathBuf], prefix: &str) -> anyhow::Result<Option<Self>> {
        let processes: Vec<_> = sockets.iter().map(|socket| process(socket)).collect();
        let Some(first) = processes.first() else { return Ok(None) };
        let features = first.store.clone().features(to_instance(FeaturesRequest {})).await?;
        let features = features.into_inner().features;
        if !features.iter().any(|feature| feature == WATCH) {
            return Ok(None);
        }
        let mut tasks = JoinSet::new();
        let watched: Vec<_> =
            processes.iter().map(|_| Arc::<Mutex<Watched>>::default()).collect();
        let watching = processes.iter().zip(&watched).map(|(process, watched)| {
            tasks.spawn(watch(process.clone(), prefix.to_owned(), Arc::clone(watched)))
        });
        let watching = watching.collect();
        Ok(Some(Self {
            processes,
            prefix: prefix.to_owned(),
            has_readers: features.iter().any(|feature| feature == SHARED),
            watched,
            watching,
            _tasks: tasks,
        }))
    }

    /// Compares the events with a list, while some locks are held and after their
    /// release. Returns the differences, and all words of the events. Nobody else may
    /// lock anything meanwhile; expiring locks are waited for.
    pub async fn compare(self) -> anyhow::Result<(Vec<String>, Words)> {
        let mut differences = Vec::new();
        let own = self.lock_own().await?;
        self.settle(&mut differences, "while locks are held").await;
        for (resource_id, lock_id) in own {
            let asked = UnlockRequest { resource_id, lock_id, ..UnlockRequest::default() };
            // A lock that could not be unlocked expires.
            let _ = self.processes[0].store.clone().unlock(to_instance(asked)).await;
        }
        self.settle(&mut differences, "after locks were given back").await;
        self.watching.iter().for_each(AbortHandle::abort);
        let mut words = Words::default();
        for watched in &self.watched {
            words.extend(&watched.lock().words);
        }
        Ok((differences, words))
    }

    async fn lock_own(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut own = Vec::new();
        let writers = (0..OWN_OF_EACH_MODE).map(|number| (number, LockMode::Exclusive));
        let readers = if self.has_readers { 2 * OWN_OF_EACH_MODE } else { 0 };
        let readers =
            (0..readers).map(|reader| (OWN_OF_EACH_MODE + reader / 2, LockMode::Shared));
        // In turn, so that the readers of a resource are at two processes if possible.
        let processes = self.processes.iter().cycle();
        for ((number, mode), process) in writers.chain(readers).zip(processes) {
            let resource_id = format!("{}{OWN}{number}", self.prefix);
            let asked = LockRequest {
                resource_id: resource_id.clone(),
                mode: mode.into(),
                ttl: Some(prost_types::Duration { seconds: OWN_TTL_S, nanos: 0 }),
                holder: "watch".into(),
                ..LockRequest::default()
            };
            let granted =
                process.store.clone().try_lock(to_instance(asked)).await?.into_inner();
            own.push((resource_id, granted.lock_id));
        }
        Ok(own)
    }

    /// Waits until the watch and the list of each process agree.
    async fn settle(&self, differences: &mut Vec<String>, when: &str) {
        let give_up = Instant::now() + SAME_WITHIN;
        for (number, (process, watched)) in self.processes.iter().zip(&self.watched).enumerate()
        {
            loop {
                let listed = timeout(ANSWER_MAX, list(process, &self.prefix)).await;
                let difference = match listed {
                    Ok(Ok(listed)) => watched.lock().table.difference(&listed),
                    Ok(Err(status)) => Some(format!("a list failed: {status}")),
                    Err(_) => Some("a list was not answered".to_owned()),
                };
                let Some(difference) = difference else { break };
                if Instant::now() >= give_up {
                    differences.push(format!("leasehold {number}, {when}: {difference}"));
                    break;
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Watches, and begins again whenever a watch ends.
async fn watch(process: Process, prefix: String, watched: Arc<Mutex<Watched>>) {
    loop {
        let scope = Some(LockScope { prefix: prefix.clone(), ..LockScope::default() });
        let asked = WatchLocksRequest { scope, ..WatchLocksRequest::default() };
        if let Ok(events) = process.inspection.clone().watch_locks(to_instance(asked)).await {
            let mut events = events.into_inner();
            watched.lock().table = Table::default();
            while let Ok(Some(event)) = events.message().await {
                let mut watched = watched.lock();
                watched.table.fold(&event);
                watched.words.add(&event);
            }
        }
        sleep(AGAIN).await;
    }
}

/// Every lock that is listed.
async fn list(
    process: &Process,
    prefix: &str,
) -> Result<BTreeMap<String, Held>, tonic::Status> {
    let mut locks = BTreeMap::new();
    let mut page_token = String::new();
    loop {
        let asked = ListLocksRequest {
            scope: Some(LockScope { prefix: prefix.to_owned(), ..LockScope::default() }),
            page_token,
            ..ListLocksRequest::default()
        };
        let page =
            process.inspection.clone().list_locks(to_instance(asked)).await?.into_inner();
        locks.extend(page.locks.iter().map(|lock| (lock.resource_id.clone(), Held::of(lock))));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(locks);
        }
    }
}
