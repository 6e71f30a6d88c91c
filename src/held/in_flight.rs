//! The requests that may still be answered with a lock.

use std::{collections::HashMap, time::Duration};

use leasehold_lock::{AttemptId, LockError, RequestId};

use super::{
    Engine, Resource, belief::Sending, claims::Claims, record::RecordId,
    renewal::changed_nothing, store::Request,
};

/// A request with a `request_id` that is not answered yet. While there is one, its lock is not
/// released: the request may be answered with it. If it is dropped, and is the last one, a lock
/// that nobody has is released.
#[derive(Debug)]
pub struct InFlight {
    engine: Engine,
    request: Request,
    /// `None` if it has claimed nothing.
    attempt: Option<AttemptId>,
    /// If the lock is held here: its TTL may have been shortened.
    sending: Option<(RecordId, Sending)>,
}

impl Engine {
    /// A request with this `request_id` is sent now. If it finds a grant that is held here, the
    /// grant may end as early as the TTL that is asked for.
    #[must_use]
    pub fn begin(
        &self,
        resource: Resource,
        request_id: RequestId,
        asked: Duration,
        attempt: AttemptId,
    ) -> InFlight {
        let request = (resource, request_id);
        let id = {
            let mut table = self.table();
            table.in_flight.begin(request.clone());
            table.find_request(&request)
        };
        let sending = id.and_then(|id| Some((id, self.sends(id, Some(asked))?)));
        InFlight { engine: self.clone(), request, attempt: Some(attempt), sending }
    }
}

impl InFlight {
    /// The request has got its grant by this attempt.
    pub fn granted(&mut self, attempt: AttemptId) {
        self.attempt = Some(attempt);
    }

    /// The request failed.
    pub fn failed(&mut self, error: &LockError) {
        if !changed_nothing(error) {
            return;
        }
        self.attempt = None;
        let Some((id, sending)) = &self.sending else { return };
        let mut table = self.engine.table();
        if let Some(held) = table.get_mut(*id) {
            held.schedule.belief.did_not_happen(sending);
            self.engine.reschedule(&mut table, *id);
        }
    }

    /// Whether nobody else has the lock of this request here, or may be answered with it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let mut table = self.engine.table();
        let id = table.find_request(&self.request);
        let held = id.and_then(|id| table.get_mut(id));
        held.is_none_or(|held| held.keeper.is_nobody())
            && table.in_flight.is_alone(&self.request)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut table = self.engine.table();
        if let Some(record) = table.end_in_flight(&self.request, self.attempt) {
            self.engine.release_now(record);
        }
    }
}

/// The requests in flight, by their `request_id`.
#[derive(Default)]
pub(super) struct InFlightRequests(HashMap<Request, Same>);

/// The requests with one `request_id`.
#[derive(Default)]
struct Same {
    in_flight: usize,
    /// What those claimed that have ended before the lock was held here.
    claims: Claims,
}

impl InFlightRequests {
    fn begin(&mut self, request: Request) {
        self.0.entry(request).or_default().in_flight += 1;
    }

    /// Records that a request has ended. Returns whether it was the last one.
    pub(super) fn end(&mut self, request: &Request) -> bool {
        let Some(same) = self.0.get_mut(request) else { return true };
        same.in_flight -= 1;
        let is_last = same.in_flight == 0;
        if is_last {
            self.0.remove(request);
        }
        is_last
    }

    /// Records what a request has claimed while no lock of its `request_id` is held here.
    pub(super) fn add_claim(&mut self, request: &Request, attempt: AttemptId) {
        if let Some(same) = self.0.get_mut(request) {
            same.claims.add(attempt);
        }
    }

    /// The lock of this request is held from now on. Returns what was claimed before.
    pub(super) fn take_claims(&mut self, request: &Request) -> Claims {
        self.0.get_mut(request).map(|same| std::mem::take(&mut same.claims)).unwrap_or_default()
    }

    /// Whether a request may still be answered with the lock of this one.
    pub(super) fn contains(&self, request: &Request) -> bool {
        self.0.contains_key(request)
    }

    fn is_alone(&self, request: &Request) -> bool {
        self.0.get(request).is_none_or(|same| same.in_flight == 1)
    }
}
