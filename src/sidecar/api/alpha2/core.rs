//! What alpha2 does alike over gRPC and HTTP, with a stream and without.

use std::{sync::Arc, time::Duration};

use leasehold_held::{Engine, HeldGuard, HoldEnd, Holding, InFlight, MaxHold, Resource};
use leasehold_lock::{
    AcquireRequest, AttemptId, Granted, LockError, LockId, Mode, RequestId, read_by,
};
use leasehold_net::answers::Delivery;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::inspection::PageTokens;
use crate::{
    api::error::ApiError,
    identity::Identity,
    name::ResourceName,
    stores::{NamedStore, Stores},
};

/// The alpha2 API over the sidecar's stores.
#[derive(Clone, Debug)]
pub struct Locks {
    pub(super) stores: Stores,
    pub(super) engine: Engine,
    pub(super) identity: Identity,
    max_hold_default: Option<Duration>,
    pub(super) page_tokens: PageTokens,
}

/// Asks for a lock.
#[derive(Clone)]
pub struct LockCall {
    /// The component's name.
    pub store_name: String,
    /// What to lock, as the app names it.
    pub resource: ResourceName,
    /// Do not wait.
    pub immediate: bool,
    /// The TTL asked for; `None` means the store's default.
    pub ttl: Option<Duration>,
    /// The caller's secret for retries.
    pub request_id: Option<RequestId>,
    /// Whether other grants may coexist with it.
    pub mode: Mode,
    /// After how long the lock is released whatever the app does.
    pub max_hold: Option<Duration>,
    /// The app renews by itself.
    pub no_renewal: bool,
    /// What the app adds to the holder; may be empty.
    pub label: String,
    /// When the call arrived.
    pub arrived: Instant,
    /// When the wait ends; `None`: `deadline` alone limits it.
    pub wait_end: Option<Instant>,
    /// The deadline of the call itself; `None`: it has none.
    pub deadline: Option<Instant>,
    /// Whether a stream holds the lock.
    pub streamed: bool,
}

impl LockCall {
    /// When the lock must be acquired: at the end of the wait, or at the call's deadline if
    /// that comes first.
    fn limit(&self) -> Option<Instant> {
        self.wait_end.into_iter().chain(self.deadline).min()
    }
}

/// A grant whose answer is not yet written. Dropping it releases the grant.
#[derive(Debug)]
pub struct UndeliveredGrant {
    /// The grant.
    pub granted: Granted,
    engine: Engine,
    holding: Holding,
    /// If it has a `request_id`.
    in_flight: Option<InFlight>,
}

impl Locks {
    /// The API over these stores, for this app.
    #[must_use]
    pub fn new(stores: Stores, engine: Engine, identity: Identity) -> Self {
        let page_tokens = PageTokens::default();
        Self { stores, engine, identity, max_hold_default: None, page_tokens }
    }

    /// Limits how long a lock is renewed that has no `max_hold` and that neither a stream nor
    /// health checks would end if its app stands still; `None` means no limit.
    #[must_use]
    pub fn with_max_hold_default(self, max_hold_default: Option<Duration>) -> Self {
        Self { max_hold_default, ..self }
    }

    /// The engine that renews held locks.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Acquires a lock without a stream, and returns early enough for the answer to arrive
    /// before the call's deadline.
    pub async fn lock(&self, call: LockCall) -> Result<UndeliveredGrant, ApiError> {
        let max_hold = self.limited(&call);
        // The answer ends the call, so it must come before the end of the wait too.
        let call = LockCall { deadline: call.limit(), wait_end: None, ..call };
        let times =
            call.deadline.and_then(|deadline| read_by(call.arrived, deadline, !call.immediate));
        let Some((answer_by, ended_by)) = times else {
            return self.acquire_within(call, max_hold, None).await;
        };
        let acquiring = self.acquire_within(call, max_hold, Some(answer_by));
        match timeout_at(ended_by, acquiring).await {
            Ok(answer) if answer.is_err() || Instant::now() <= answer_by => answer,
            // Dropping the grant, or the attempt, releases it.
            _ => Err(LockError::OutcomeUnknown(
                "the lock was not acquired in time for the answer to arrive before the deadline"
                    .into(),
            )
            .into()),
        }
    }

    /// Acquires a lock, waiting for it unless `immediate`. The end of the wait is answered once
    /// the store has confirmed that nothing is left of it. May be dropped at any await, and so
    /// may what it returns: the grant is then released.
    #[cfg(test)]
    pub(crate) async fn acquire(&self, call: LockCall) -> Result<UndeliveredGrant, ApiError> {
        let max_hold = MaxHold::asked_for(call.max_hold);
        self.acquire_within(call, max_hold, None).await
    }

    /// The limit of a lock that nothing else would end if its app stands still.
    pub(super) fn limited(&self, call: &LockCall) -> MaxHold {
        match (call.max_hold, self.max_hold_default) {
            (None, Some(limit)) if !call.no_renewal => MaxHold::Default(limit),
            (asked, _) => MaxHold::asked_for(asked),
        }
    }

    pub(super) async fn acquire_within(
        &self,
        call: LockCall,
        max_hold: MaxHold,
        answer_by: Option<Instant>,
    ) -> Result<UndeliveredGrant, ApiError> {
        let resource = self.resource(&call.store_name, &call.resource)?;
        let store = resource.store();
        if self.engine.is_full() {
            return Err(ApiError::TooManyHeld);
        }
        let attempt = AttemptId::random();
        let request = AcquireRequest {
            attempt: Some(attempt),
            ttl: call.ttl,
            request_id: call.request_id.clone(),
            mode: call.mode,
            holder: self.identity.holder(&call.label)?,
            arrived: call.arrived,
            deadline: call.deadline,
            answer_by,
            wait_end: call.wait_end,
            streamed: call.streamed,
            ..AcquireRequest::new(resource.id.clone())
        };
        if !call.no_renewal {
            resource.lock_store.must_renew(&resource.id).await?;
        }
        let asked = store.ttl(call.ttl)?.duration();
        let request_id = call.request_id;
        let mut in_flight = request_id
            .clone()
            .map(|id| self.engine.begin(resource.clone(), id, asked, attempt));
        let granted = if call.immediate {
            store.try_lock(request).await
        } else {
            store.lock(request).await
        };
        let granted = granted.inspect_err(|error| {
            if let Some(in_flight) = &mut in_flight {
                in_flight.failed(error);
            }
        })?;
        if let Some(in_flight) = &mut in_flight {
            in_flight.granted(granted.attempt);
        }
        // Dropping the grant here releases it.
        let place = self.engine.place().ok_or(ApiError::TooManyHeld)?;
        let holding = Holding {
            resource,
            app_resource: call.resource.encoded().clone(),
            lock_id: granted.lock_id.clone(),
            attempt: granted.attempt,
            grant_id: granted.id,
            mode: call.mode,
            token: granted.token,
            request_id,
            ttl: granted.ttl,
            asked,
            since: granted.since,
            renewed: !call.no_renewal,
            max_hold,
            place,
            deadlines: None,
        };
        Ok(UndeliveredGrant { granted, engine: self.engine.clone(), holding, in_flight })
    }

    /// Ends the grant of a lock ID.
    pub async fn unlock(
        &self,
        store_name: &str,
        resource: &ResourceName,
        lock_id: LockId,
    ) -> Result<(), ApiError> {
        let resource = self.resource(store_name, resource)?;
        Ok(self.engine.unlock(&resource, lock_id).await?)
    }

    /// The store of this name.
    pub(super) fn store(&self, name: &str) -> Result<Arc<NamedStore>, ApiError> {
        self.stores.get(name).ok_or_else(|| {
            if let Some(why) = self.stores.failure(name) {
                return LockError::StoreUnavailable(why).into();
            }
            let there: Vec<_> =
                self.stores.all().iter().map(|store| store.name().to_string()).collect();
            if there.is_empty() {
                return ApiError::NoStores;
            }
            ApiError::StoreNotFound { name: name.to_owned(), there }
        })
    }

    /// Where what the app names is locked.
    pub(crate) fn resource(
        &self,
        store_name: &str,
        name: &ResourceName,
    ) -> Result<Resource, ApiError> {
        Ok(self.store(store_name)?.resource(name)?)
    }
}

impl UndeliveredGrant {
    /// Ties the grant to an answer. The lock is held once the transport takes the answer, and
    /// released if that does not happen. A grant that a replay found is not released: it stays
    /// with the caller that received it first.
    #[must_use]
    pub(crate) fn deliver(self) -> Delivery {
        let Self { granted, engine, holding, in_flight } = self;
        Delivery::new(granted.receipt, move || {
            engine.hold(holding);
            drop(in_flight);
        })
    }

    /// Whether nobody else has its lock here, or may be answered with it.
    pub(crate) fn is_alone(&self) -> bool {
        self.in_flight.as_ref().is_none_or(InFlight::is_alone)
    }

    /// Holds the grant for a stream, which releases it at its end. A grant that is over is
    /// released instead.
    pub(crate) fn hold_for_stream(
        self,
    ) -> Result<(Option<HeldGuard>, oneshot::Receiver<HoldEnd>), LockError> {
        self.granted.receipt.try_accept()?;
        Ok(self.engine.hold_for_stream(self.holding))
    }
}
