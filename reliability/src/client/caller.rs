//! Carries calls out and records them.

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper_util::client::legacy::Error;
use leasehold_proto::{
    components::{
        LockMode, LockRequest, LockResponse, RenewLockRequest, RenewLockResponse, UnlockRequest,
    },
    locks::{EndLocksRequest, EndLocksResponse},
};
use tokio::time::{sleep, timeout};
use tonic::{Request, Status, metadata::MetadataValue};
use tonic_types::StatusExt;

use super::connection::Process;
use crate::{
    clock::now_ns,
    history::{Acquisition, Call, Event, Granted, Invocation, Log, Mode, NOT_SENT, Outcome},
    world::INSTANCE,
};

/// How long after the call's deadline, or the operation timeout, an answer is
/// awaited.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The pause of a client after an error, so that an outage is no busy loop.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// One client of the leasehold processes. Its calls go to its home process
/// unless it chooses another.
#[derive(Clone, Debug)]
pub struct Caller {
    processes: Arc<[Process]>,
    /// The process that its calls go to.
    home: usize,
    log: Arc<Log>,
    process: u32,
    client: u32,
    ids: Arc<AtomicU64>,
}

impl Caller {
    /// Client number `client` of the process with these `ids`. Clients are
    /// distributed over `processes`, which must not be empty.
    #[must_use]
    pub fn new(
        processes: Arc<[Process]>,
        log: Arc<Log>,
        ids: Arc<AtomicU64>,
        client: u32,
    ) -> Self {
        let process = u32::try_from(ids.load(Ordering::Relaxed) >> 32).unwrap_or_default();
        let home = (process as usize + client as usize) % processes.len().max(1);
        Self { processes, home, log, process, client, ids }
    }

    /// How many leasehold processes it can call.
    pub(super) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// The same client, calling leasehold process number `home`.
    pub(super) fn at(&self, home: usize) -> Self {
        Self { home: home % self.processes.len().max(1), ..self.clone() }
    }

    /// A source of call numbers that no other process has.
    #[must_use]
    pub fn ids(process: u32) -> Arc<AtomicU64> {
        Arc::new(AtomicU64::new(u64::from(process) << 32))
    }

    /// Carries a call out; if it takes longer than `patience`, cancels it.
    pub async fn call(
        &self,
        resource: &str,
        call: Call,
        patience: Option<Duration>,
    ) -> anyhow::Result<Outcome> {
        let limit = match &call {
            Call::Lock { wait_ms, .. } => ANSWER_MAX + Duration::from_millis(*wait_ms),
            _ => ANSWER_MAX,
        };
        let (limit, reason) = match patience {
            Some(patience) if patience < limit => (patience, "cancelled"),
            _ => (limit, "no answer"),
        };
        let outcome = timeout(limit, self.send(resource, &call));
        let outcome =
            async { outcome.await.unwrap_or_else(|_| Outcome::Unknown(reason.into())) };
        let via = u32::try_from(self.home).ok();
        self.record(resource, &call, via, outcome).await
    }

    /// Records a call with its outcome.
    pub(super) async fn record(
        &self,
        resource: &str,
        call: &Call,
        via: Option<u32>,
        outcome: impl Future<Output = Outcome>,
    ) -> anyhow::Result<Outcome> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.log.record(&Event::Invoke(Invocation {
            id,
            at_ns: now_ns(),
            process: self.process,
            client: self.client,
            via,
            resource: resource.to_owned(),
            call: call.clone(),
        }))?;
        let outcome = outcome.await;
        let failed = matches!(outcome, Outcome::Unavailable | Outcome::Refused(_))
            || matches!(&outcome, Outcome::Unknown(why) if why != "cancelled");
        self.log.record(&Event::Complete { id, at_ns: now_ns(), outcome: outcome.clone() })?;
        if failed {
            sleep(AFTER_ERROR).await;
        }
        Ok(outcome)
    }

    async fn send(&self, resource: &str, call: &Call) -> Outcome {
        let Some(Process { mut store, mut inspection }) =
            self.processes.get(self.home).cloned()
        else {
            return Outcome::Refused(NOT_SENT.into());
        };
        let resource_id = resource.to_owned();
        let answer = match call {
            Call::Try(acquisition) => {
                let request = self.request(resource_id, acquisition);
                store.try_lock(to_instance(request)).await.map(granted)
            }
            Call::Lock { acquisition, wait_ms } => {
                let mut request = to_instance(self.request(resource_id, acquisition));
                request.set_timeout(Duration::from_millis(*wait_ms));
                store.lock(request).await.map(granted)
            }
            Call::Renew { lock_id, ttl_ms } => {
                let request = RenewLockRequest {
                    resource_id,
                    lock_id: lock_id.clone(),
                    ttl: duration(*ttl_ms),
                    ..RenewLockRequest::default()
                };
                store.renew_lock(to_instance(request)).await.map(renewed)
            }
            Call::Unlock { lock_id } | Call::UnlockWrong { lock_id } => {
                let lock_id = lock_id.clone();
                let request =
                    UnlockRequest { resource_id, lock_id, ..UnlockRequest::default() };
                store.unlock(to_instance(request)).await.map(|_| Outcome::Unlocked)
            }
            Call::Force => {
                let request =
                    UnlockRequest { resource_id, force: true, ..UnlockRequest::default() };
                store.unlock(to_instance(request)).await.map(|_| Outcome::Unlocked)
            }
            Call::End { grant_id } => {
                let grant_id = grant_id.clone();
                let request =
                    EndLocksRequest { resource_id, grant_id, ..EndLocksRequest::default() };
                inspection.end_locks(to_instance(request)).await.map(ended)
            }
            Call::EndAll => {
                let request = EndLocksRequest { resource_id, ..EndLocksRequest::default() };
                inspection.end_locks(to_instance(request)).await.map(ended)
            }
            // Not calls of the component.
            Call::ForeignTry(_) | Call::FrontTry(_) => {
                return Outcome::Refused(NOT_SENT.into());
            }
        };
        answer.unwrap_or_else(|status| refused(&status))
    }

    fn request(&self, resource_id: String, acquisition: &Acquisition) -> LockRequest {
        LockRequest {
            resource_id,
            ttl: duration(acquisition.ttl_ms),
            lock_id: acquisition.lock_id.clone().unwrap_or_default(),
            request_id: acquisition.request_id.clone().unwrap_or_default(),
            mode: match acquisition.mode {
                Mode::Exclusive => LockMode::Exclusive,
                Mode::Shared => LockMode::Shared,
            }
            .into(),
            holder: format!("{}-{}", self.process, self.client),
            ..LockRequest::default()
        }
    }
}

/// The message for the instance that the leasehold processes of a run have.
pub(crate) fn to_instance<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let instance = MetadataValue::from_static(INSTANCE);
    request.metadata_mut().insert("x-component-instance", instance);
    request
}

fn granted(response: tonic::Response<LockResponse>) -> Outcome {
    let LockResponse { lock_id, fencing_token, ttl, waited, grant_id } = response.into_inner();
    let (ttl_ns, waited_ns) = (nanos(ttl), nanos(waited));
    Outcome::Granted(Granted { lock_id, token: fencing_token, ttl_ns, waited_ns, grant_id })
}

fn ended(response: tonic::Response<EndLocksResponse>) -> Outcome {
    let EndLocksResponse { ended, more } = response.into_inner();
    let grants = ended.into_iter().flat_map(|lock| lock.grants);
    Outcome::Ended { grant_ids: grants.map(|grant| grant.grant_id).collect(), more }
}

fn renewed(response: tonic::Response<RenewLockResponse>) -> Outcome {
    Outcome::Renewed { ttl_ns: nanos(response.into_inner().ttl) }
}

/// Only leasehold's own refusals are known outcomes; after the transport's
/// errors the outcome is unknown.
fn refused(status: &Status) -> Outcome {
    let transport = status.source().and_then(|error| error.downcast_ref::<Error>());
    if transport.is_some_and(Error::is_connect) {
        return Outcome::Refused(NOT_SENT.into());
    }
    let Some(info) = status.get_details_error_info().filter(|info| info.domain == "dapr.io")
    else {
        return Outcome::Unknown(format!("{:?}: {}", status.code(), status.message()));
    };
    match info.reason.as_str() {
        "RESOURCE_LOCKED" => Outcome::Locked,
        "LOCK_NOT_FOUND" => Outcome::NotHeld {
            held: info.metadata.get("held").and_then(|held| held.parse().ok()),
        },
        "WAIT_DEADLINE" => Outcome::WaitDeadline,
        "STORE_UNAVAILABLE" | "SHUTTING_DOWN" => Outcome::Unavailable,
        "OUTCOME_UNKNOWN" => Outcome::Unknown("OUTCOME_UNKNOWN".into()),
        "INTERNAL" => Outcome::Unknown("INTERNAL".into()),
        reason => Outcome::Refused(reason.to_owned()),
    }
}

fn duration(ms: u64) -> Option<prost_types::Duration> {
    prost_types::Duration::try_from(Duration::from_millis(ms)).ok()
}

fn nanos(duration: Option<prost_types::Duration>) -> u64 {
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    u64::try_from(duration.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}
