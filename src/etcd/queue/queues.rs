//! The queues in which this process waits, or waited recently.

use std::{collections::HashMap, sync::Arc};

use leasehold_lock::{BackendError, Mode, ResourceId, Settings};
use parking_lot::Mutex;

use crate::{
    client::reads::Reads,
    etcd::Etcd,
    keys::EntryId,
    queue::{place::Place, session::Sessions, waiters::Queue, watch::streams::WatchStreams},
};

/// All queues of a backend instance.
pub(crate) struct Queues {
    pub(super) etcd: Arc<Etcd>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) watches: WatchStreams,
    /// Reads of the queues' keys. They are apart from other reads, which need not wait for
    /// them.
    pub(super) lists: Arc<Reads>,
    pub(super) settings: Settings,
    queues: Mutex<HashMap<ResourceId, Arc<Queue>>>,
}

impl Queues {
    /// Follows no queue yet.
    pub(crate) fn new(
        etcd: Arc<Etcd>,
        sessions: Arc<Sessions>,
        settings: Settings,
    ) -> Arc<Self> {
        Arc::new(Self {
            lists: etcd.reads_apart(),
            watches: WatchStreams::new(Arc::clone(&etcd)),
            etcd,
            sessions,
            settings,
            queues: Mutex::default(),
        })
    }

    /// Takes a place in the resource's queue. Also returns the queue if it is new, so that
    /// nobody follows it yet.
    pub(super) fn take_place(
        &self,
        resource: &ResourceId,
    ) -> Result<(Place, Option<Arc<Queue>>), BackendError> {
        let waiters_max = self.settings.waiters_per_resource_max;
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get(resource)
            && let Some(place) = Place::take(queue, waiters_max)?
        {
            return Ok((place, None));
        }
        let readers_max = self.settings.holders_per_resource_max;
        let queue = Queue::new(resource.clone(), self.sessions.instance(), readers_max);
        let queue = Arc::new(queue);
        let place = Place::take(&queue, waiters_max)?;
        queues.insert(resource.clone(), Arc::clone(&queue));
        let closed = || BackendError::Unavailable("the store is closing".into());
        Ok((place.ok_or_else(closed)?, Some(queue)))
    }

    /// Whether the resource is known to be held against an attempt of this mode, or waited
    /// for.
    pub(crate) fn is_contended(&self, resource: &ResourceId, mode: Mode) -> bool {
        let queue = self.queues.lock().get(resource).cloned();
        queue.is_some_and(|queue| queue.is_contended(mode))
    }

    /// The entries of this process's waiters, also those that are just being put.
    pub(super) fn entries(&self) -> Vec<(ResourceId, EntryId)> {
        let queues: Vec<_> = self.queues.lock().values().cloned().collect();
        let entries = |queue: &Arc<Queue>| {
            let resource = queue.resource.clone();
            queue.own_entries().into_iter().map(move |entry| (resource.clone(), entry))
        };
        queues.iter().flat_map(entries).collect()
    }

    /// Forgets a queue that nobody waits in; `false` if somebody does.
    pub(super) fn close(&self, queue: &Arc<Queue>) -> bool {
        let mut queues = self.queues.lock();
        if !queue.close() {
            return false;
        }
        if queues.get(&queue.resource).is_some_and(|listed| Arc::ptr_eq(listed, queue)) {
            queues.remove(&queue.resource);
        }
        true
    }
}
