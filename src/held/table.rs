//! All held locks, in the order in which something comes due.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use leasehold_lock::{AttemptId, Instant, Mode};
use tokio::sync::Notify;

use super::{
    in_flight::InFlightRequests,
    lane::{Lane, LanePermit},
    lost::Lost,
    record::{Record, RecordId},
    schedule::Due,
    store::{GrantName, Request, Resource},
};

/// The records and their indexes. Its methods keep them consistent.
pub(super) struct Table {
    records: HashMap<RecordId, Record>,
    /// In the order in which they were added: one exclusive grant, or shared grants.
    by_resource: HashMap<Resource, Vec<RecordId>>,
    by_name: HashMap<GrantName, RecordId>,
    by_request: HashMap<Request, RecordId>,
    timers: BTreeSet<(Instant, RecordId)>,
    /// By the store's name and the server.
    lanes: BTreeMap<(Arc<str>, u64), Lane>,
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
            by_resource: HashMap::new(),
            by_name: HashMap::new(),
            by_request: HashMap::new(),
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
        let id = id.filter(|id| is_last && self.records[id].keeper.is_nobody())?;
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

    /// The records of a resource: one exclusive grant, or shared grants.
    pub(super) fn of_resource(
        &self,
        resource: &Resource,
    ) -> impl Iterator<Item = (RecordId, &Record)> {
        let ids = self.by_resource.get(resource).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.records.get(id)?)))
    }

    /// The records of a resource that cannot live together with a grant of this mode.
    pub(super) fn excluded_by(&self, resource: &Resource, mode: Mode) -> Vec<RecordId> {
        let records = self.of_resource(resource);
        if mode == Mode::Exclusive {
            return records.map(|(id, _)| id).collect();
        }
        // An exclusive record is the only one of its resource.
        let first = records.take(1).filter(|(_, first)| first.holding.mode == Mode::Exclusive);
        first.map(|(id, _)| id).collect()
    }

    /// The record of this grant.
    pub(super) fn find(&self, name: &GrantName) -> Option<RecordId> {
        self.by_name.get(name).copied()
    }

    /// The record of the grant that a request with this request ID made.
    pub(super) fn find_request(&self, request: &Request) -> Option<RecordId> {
        self.by_request.get(request).copied()
    }

    /// Adds a record, whose name no other has.
    pub(super) fn insert(&mut self, mut record: Record) -> RecordId {
        let id = self.next_id;
        self.next_id += 1;
        if let Some(request) = record.request() {
            let mut claims = self.in_flight.take_claims(&request);
            claims.extend(&record.claims);
            record.claims = claims;
            self.by_request.insert(request, id);
        }
        self.timers.insert((record.timer, id));
        self.by_resource.entry(record.holding.resource.clone()).or_default().push(id);
        self.by_name.insert(record.name(), id);
        self.records.insert(id, record);
        id
    }

    /// A repeated request was granted the same lock. Returns how often that has happened, or
    /// `None` if a later request has the lock already.
    pub(super) fn replayed(&mut self, id: RecordId, replay: Record) -> Option<u32> {
        self.dequeue(id);
        let held = self.records.get_mut(&id)?;
        let before = held.request();
        let is_latest = held.replayed(replay);
        let (after, replays) = (held.request(), held.replays);
        if before != after {
            self.forget_request(before, id);
            self.by_request.extend(after.map(|request| (request, id)));
        }
        is_latest.then_some(replays)
    }

    /// Removes a record from all indexes.
    pub(super) fn remove(&mut self, id: RecordId) -> Option<Record> {
        self.dequeue(id);
        let record = self.records.remove(&id)?;
        self.timers.remove(&(record.timer, id));
        self.by_name.remove(&record.name());
        self.forget_request(record.request(), id);
        if let Some(ids) = self.by_resource.get_mut(&record.holding.resource) {
            if let Ok(at) = ids.binary_search(&id) {
                ids.remove(at);
            }
            if ids.is_empty() {
                self.by_resource.remove(&record.holding.resource);
            }
        }
        Some(record)
    }

    /// The same request may have made a later grant, if the store ended this one.
    fn forget_request(&mut self, request: Option<Request>, id: RecordId) {
        if let Some(request) = request
            && self.by_request.get(&request) == Some(&id)
        {
            self.by_request.remove(&request);
        }
    }

    /// Moves a record to where its schedule now says, and reports its deadline. Returns when it is
    /// next due.
    pub(super) fn reschedule(&mut self, id: RecordId) -> Option<Instant> {
        let record = self.records.get_mut(&id)?;
        if let Some(deadlines) = &record.holding.deadlines {
            deadlines.send_replace(record.schedule.belief.safe_deadline());
        }
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

    /// Puts a record into the queue of its server for a renewal.
    pub(super) fn enqueue(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let resource = &record.holding.resource;
        let server = resource.store().server_of(&resource.id);
        let key = (Arc::clone(resource.lock_store.name()), server);
        let safe_deadline = record.schedule.queue(server);
        let in_flight_max = self.lane_in_flight_max;
        if !self.lanes.contains_key(&key) {
            // Servers come and go.
            self.lanes.retain(|_, lane| !lane.is_idle());
        }
        self.lanes
            .entry(key)
            .or_insert_with(|| Lane::new(in_flight_max))
            .enqueue(safe_deadline, id);
        self.reschedule(id);
    }

    /// Takes a record out of its server's queue, if it is there.
    pub(super) fn dequeue(&mut self, id: RecordId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let Some((server, at)) = record.schedule.renewal.take_queued() else { return };
        let key = (Arc::clone(record.holding.resource.lock_store.name()), server);
        if let Some(lane) = self.lanes.get_mut(&key) {
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
