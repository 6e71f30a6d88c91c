//! All held locks, in the order in which something comes due.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use leasehold_lock::{AttemptId, Instant, LockId, Mode};
use tokio::sync::Notify;

use super::{
    HeldKey,
    in_flight::InFlightRequests,
    lane::{Lane, LanePermit},
    lost::Lost,
    others::Others,
    record::{Record, RecordId},
    schedule::Due,
    store::Request,
};

/// The records and their indexes. Its methods keep them consistent.
pub(super) struct Table {
    records: HashMap<RecordId, Record>,
    by_key: HashMap<HeldKey, RecordId>,
    /// Records of a key that has, or had, one in `by_key` already.
    others: HashMap<HeldKey, Others>,
    timers: BTreeSet<(Instant, RecordId)>,
    /// By the name of their store.
    lanes: BTreeMap<Arc<str>, Lane>,
    lane_in_flight_max: usize,
    next_id: RecordId,
    /// When the driver wakes by itself; `None` means never.
    pub(super) driver_wakes_at: Option<Instant>,
    /// The locks that were lost in the last minutes.
    pub(super) lost: Lost,
    /// The requests that may still be answered with a lock.
    pub(super) in_flight: InFlightRequests,
}

impl Table {
    pub(super) fn new(lane_in_flight_max: usize) -> Self {
        Self {
            records: HashMap::new(),
            by_key: HashMap::new(),
            others: HashMap::new(),
            timers: BTreeSet::new(),
            lanes: BTreeMap::new(),
            lane_in_flight_max,
            next_id: 0,
            driver_wakes_at: None,
            lost: Lost::default(),
            in_flight: InFlightRequests::default(),
        }
    }

    /// Records that a request has ended, which may have claimed its grant by this attempt. If it
    /// was the last one in flight, returns the lock that nobody has, which is to be released.
    pub(super) fn end_in_flight(
        &mut self,
        request: &Request,
        attempt: Option<AttemptId>,
    ) -> Option<Record> {
        let id = self.find_request(request);
        match (attempt, id.and_then(|id| self.records.get_mut(&id))) {
            (Some(attempt), Some(record)) => record.claims.add(attempt),
            (Some(attempt), None) => self.in_flight.add_claim(request, attempt),
            (None, _) => {}
        }
        let is_last = self.in_flight.end(request);
        let id = id.filter(|id| is_last && self.records[id].holder.is_nobody())?;
        self.remove(id)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn ids(&self) -> Vec<RecordId> {
        self.records.keys().copied().collect()
    }

    pub(super) fn get_mut(&mut self, id: RecordId) -> Option<&mut Record> {
        self.records.get_mut(&id)
    }

    /// The records of a key, of any lock ID: one exclusive grant, or shared grants.
    pub(super) fn of_key(&self, key: &HeldKey) -> impl Iterator<Item = (RecordId, &Record)> {
        let others = self.others.get(key).into_iter().flat_map(Others::ids);
        let ids = self.by_key.get(key).copied().into_iter().chain(others);
        ids.filter_map(|id| Some((id, self.records.get(&id)?)))
    }

    /// The records of a key that cannot live together with a grant of this mode.
    pub(super) fn excluded_by(&self, key: &HeldKey, mode: Mode) -> Vec<RecordId> {
        if mode == Mode::Exclusive {
            return self.of_key(key).map(|(id, _)| id).collect();
        }
        // An exclusive record is the only one of its key.
        let id = self.first_of(key, |record| record.mode == Mode::Exclusive);
        id.into_iter().collect()
    }

    /// The record of this grant.
    pub(super) fn find(&self, key: &HeldKey, lock_id: &LockId) -> Option<RecordId> {
        self.first_of(key, |record| record.lock_id == *lock_id)
            .or_else(|| self.others.get(key)?.with_lock_id(lock_id))
    }

    /// The record of the grant that a request with this request ID made.
    pub(super) fn find_request(&self, request: &Request) -> Option<RecordId> {
        let (key, request_id) = request;
        self.first_of(key, |record| record.request_id.as_ref() == Some(request_id))
            .or_else(|| self.others.get(key)?.with_request_id(request_id))
    }

    /// The record of a key in `by_key`, if it is the one that is asked for.
    fn first_of(&self, key: &HeldKey, is_it: impl FnOnce(&Record) -> bool) -> Option<RecordId> {
        let id = *self.by_key.get(key)?;
        is_it(self.records.get(&id)?).then_some(id)
    }

    /// Adds a record, whose key and lock ID no other has.
    pub(super) fn insert(&mut self, mut record: Record) -> RecordId {
        if let Some(request) = record.request() {
            let mut claims = self.in_flight.take_claims(&request);
            claims.extend(&record.claims);
            record.claims = claims;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.timers.insert((record.timer, id));
        match self.by_key.entry(record.key()) {
            Entry::Vacant(first) => {
                first.insert(id);
            }
            Entry::Occupied(first) => {
                self.others.entry(first.key().clone()).or_default().insert(id, &record);
            }
        }
        self.records.insert(id, record);
        id
    }

    /// A repeated request was granted the same lock. Returns how often that has happened, or
    /// `None` if a later request has the lock already.
    pub(super) fn replayed(&mut self, id: RecordId, replay: Record) -> Option<u32> {
        self.dequeue(id);
        let key = replay.key();
        let held = self.records.get_mut(&id)?;
        let others = self.others.get_mut(&key);
        let others = others.filter(|_| self.by_key.get(&key) != Some(&id));
        let is_latest = if let Some(others) = others {
            others.remove(id, held);
            let is_latest = held.replayed(replay);
            others.insert(id, held);
            is_latest
        } else {
            held.replayed(replay)
        };
        is_latest.then_some(held.replays)
    }

    /// Removes a record from all indexes.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<Record> {
        self.dequeue(id);
        let record = self.records.remove(&id)?;
        self.timers.remove(&(record.timer, id));
        self.remove_key(id, &record);
        Some(record)
    }

    fn remove_key(&mut self, id: RecordId, record: &Record) {
        let key = record.key();
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        } else if let Some(others) = self.others.get_mut(&key) {
            others.remove(id, record);
            if others.is_empty() {
                self.others.remove(&key);
            }
        }
    }

    /// Moves a record to where its schedule now says. Returns when it is next due.
    pub(super) fn reschedule(&mut self, id: RecordId) -> Option<Instant> {
        let record = self.records.get_mut(&id)?;
        let next = record.schedule.next();
        if next != record.timer {
            self.timers.remove(&(record.timer, id));
            self.timers.insert((next, id));
            record.timer = next;
        }
        Some(next)
    }

    /// When something is next due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// One record that is due at `now`. The caller must act on it, so that it is no longer
    /// due.
    pub(super) fn due(&mut self, now: Instant) -> Option<(RecordId, Due)> {
        loop {
            let (at, id) = *self.timers.first()?;
            if at > now {
                return None;
            }
            if let Some(due) = self.records.get(&id).and_then(|record| record.schedule.due(now))
            {
                return Some((id, due));
            }
            self.timers.pop_first();
        }
    }

    /// Puts a record into its store's queue for a renewal.
    pub(super) fn enqueue(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let safe_deadline = record.schedule.queue();
        let in_flight_max = self.lane_in_flight_max;
        self.lanes
            .entry(Arc::clone(record.store.name()))
            .or_insert_with(|| Lane::new(in_flight_max))
            .enqueue(safe_deadline, id);
        self.reschedule(id);
    }

    /// Takes a record out of its store's queue, if it is there.
    pub(super) fn dequeue(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if let Some(at) = record.schedule.take_queued()
            && let Some(lane) = self.lanes.get_mut(record.store.name())
        {
            lane.dequeue(at, id);
        }
    }

    /// The next record of any store to be renewed, and its permit. The caller must start
    /// the renewal or park it.
    pub(super) fn next_renewal(
        &mut self,
        wake: &Arc<Notify>,
    ) -> Option<(RecordId, LanePermit)> {
        self.lanes.values_mut().find_map(|lane| lane.next(wake))
    }
}
