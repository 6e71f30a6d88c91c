//! Calls on grants that the client does not hold.

use std::time::Duration;

use leasehold_lock::{RenewRequest, UnlockRequest};

use super::{
    super::history::{Answer, Call, OpId},
    Client,
    call::Outcome,
    named,
};

impl Client {
    pub(super) async fn force(&mut self) {
        let (op, resource) = (self.op(), self.resource());
        self.unlock_as(op, Call::Force { resource }, resource, None).await;
    }

    /// Uses a lock ID that was never granted.
    pub(super) async fn foreign(&mut self) {
        let (op, resource) = (self.op(), self.resource());
        if self.rng.bool() {
            let call = Call::UnlockForeign { resource };
            return self.unlock_as(op, call, resource, Some("nobody's")).await;
        }
        let process = self.processes.any(&mut self.rng);
        let request = RenewRequest {
            resource: named(resource),
            lock_id: "nobody's".parse().unwrap(),
            ttl: None,
        };
        let store = process.store.clone();
        let renewing = async move { store.renew(request).await };
        let call = Call::RenewForeign { resource };
        match self.called(op, &process, call, None, renewing).await {
            Outcome::Answered(Ok(_)) => self.answered(op, Answer::Renewed { safe_us: 0 }),
            Outcome::Answered(Err(error)) => self.answered(op, Answer::Failed(error)),
            Outcome::Left => {}
        }
    }

    /// Uses a lock ID of a grant that it has ended, or believes to be over.
    pub(super) async fn stale(&mut self) {
        let Some(name) = self.rng.choice(&self.stale).cloned() else { return };
        if self.rng.bool() {
            return self.unlock(&name).await;
        }
        let request = RenewRequest {
            resource: named(name.resource),
            lock_id: name.lock_id.parse().unwrap(),
            ttl: Some(Duration::from_millis(self.plan.ttl_ms_max)),
        };
        let process = self.processes.any(&mut self.rng);
        let (op, store) = (self.op(), process.store.clone());
        let call = Call::RenewStale { token: name.token, own: name.own };
        let renewing = async move { store.renew(request).await };
        match self.called(op, &process, call, None, renewing).await {
            Outcome::Answered(Ok(_)) => self.answered(op, Answer::Renewed { safe_us: 0 }),
            Outcome::Answered(Err(error)) => self.answered(op, Answer::Failed(error)),
            Outcome::Left => {}
        }
    }

    pub(super) async fn unlock_as(
        &mut self,
        op: OpId,
        call: Call,
        resource: u8,
        lock_id: Option<&str>,
    ) {
        let process = self.processes.any(&mut self.rng);
        let request = match lock_id {
            Some(lock_id) => UnlockRequest::owner(named(resource), lock_id.parse().unwrap()),
            None => UnlockRequest::force(named(resource)),
        };
        let store = process.store.clone();
        let unlocking = async move { store.unlock(request).await };
        match self.called(op, &process, call, None, unlocking).await {
            Outcome::Answered(Ok(())) => self.answered(op, Answer::Unlocked),
            Outcome::Answered(Err(error)) => self.answered(op, Answer::Failed(error)),
            Outcome::Left => {}
        }
    }
}
