//! The store under test, as cases use it.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use leasehold_proto::components::{
    FeaturesRequest, LockRequest, LockResponse, LockStoreInitRequest, MetadataRequest,
    PingRequest, RenewLockRequest, UnlockRequest, lock_store_client::LockStoreClient,
};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status};

use crate::{
    answer::{Answer, Rejection},
    connection::{Connection, Http, Instance},
    grant::{Ask, Grant, Renewal, to_wire},
    lacks::{Lacks, Missed},
    leftovers::Leftovers,
    words::Readable,
};

/// How long a call that does not wait for a lock may take: twice the protocol's operation
/// timeout, since the machine may be busy.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a case waits for a Lock that has no deadline.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a store may take to notice that a connection was cut.
const NOTICE: Duration = Duration::from_secs(1);

/// How many calls clean up after a case at the same time.
const CLEAN_UPS_AT_ONCE: usize = 16;

/// One instance of the store under test, over one connection.
#[derive(Clone)]
pub(crate) struct Store {
    instance: Instance,
    scope: Arc<Scope>,
}

/// What all calls of one case share.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) lacks: Lacks,
    pub(crate) leftovers: Leftovers,
    pub(crate) missed: Missed,
}

impl Scope {
    /// Ends the case's waits, then its grants. A grant that cannot be unlocked ends with
    /// its TTL: the cases on Unlock report a store that fails to unlock.
    pub(crate) async fn clean_up(self: &Arc<Self>, by_force: bool) {
        let noted = self.leftovers.take();
        for wait in noted.waits {
            wait.abort();
        }
        stream::iter(noted.grants)
            .for_each_concurrent(CLEAN_UPS_AT_ONCE, |(resource, grants)| async move {
                let store = Store::new(grants.instance, Arc::clone(self));
                for lock_id in &grants.lock_ids {
                    let _ = store.unlock(&resource, lock_id).await;
                }
                if by_force {
                    let _ = store.force(&resource).await;
                }
            })
            .await;
    }
}

impl Store {
    pub(crate) fn new(instance: Instance, scope: Arc<Scope>) -> Self {
        Self { instance, scope }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.instance.connection
    }

    /// Cuts the connection and waits until the store should have noticed. The protocol
    /// has no signal for that, and on a busy machine a call on another connection may
    /// arrive first.
    pub(crate) async fn cut(&self) {
        self.instance.connection.wire().cut();
        tokio::time::sleep(NOTICE).await;
    }

    pub(crate) async fn init(&self, properties: HashMap<String, String>) -> Answer<()> {
        let metadata = Some(MetadataRequest { properties });
        let request = self.request(LockStoreInitRequest { metadata });
        self.answer(self.client().init(request), ANSWER_MAX).await.map(drop)
    }

    pub(crate) async fn features(&self) -> Answer<Vec<String>> {
        let request = self.request(FeaturesRequest {});
        Ok(self.answer(self.client().features(request), ANSWER_MAX).await?.features)
    }

    pub(crate) async fn ping(&self) -> Answer<()> {
        let request = self.request(PingRequest {});
        self.answer(self.client().ping(request), ANSWER_MAX).await.map(drop)
    }

    pub(crate) async fn try_lock(&self, ask: &Ask) -> Answer<Grant> {
        let request = self.request(self.asked(ask));
        let asked_at = Instant::now();
        let response = self.answer(self.client().try_lock(request), ANSWER_MAX).await?;
        self.granted(ask, asked_at, response)
    }

    pub(crate) async fn lock(&self, ask: &Ask) -> Answer<Grant> {
        let mut request = self.request(self.asked(ask));
        let mut bound = WAIT_MAX;
        if let Some(within) = ask.within {
            request.set_timeout(within);
            bound = within + ANSWER_MAX;
        }
        let asked_at = Instant::now();
        let response = self.answer(self.client().lock(request), bound).await?;
        self.granted(ask, asked_at, response)
    }

    pub(crate) async fn renew(
        &self,
        resource: &str,
        lock_id: &str,
        ttl: Duration,
    ) -> Answer<Renewal> {
        self.renew_raw(RenewLockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ttl: Some(to_wire(ttl)),
            metadata: HashMap::new(),
        })
        .await
    }

    pub(crate) async fn renew_raw(&self, request: RenewLockRequest) -> Answer<Renewal> {
        let request = self.request(request);
        let asked_at = Instant::now();
        let answer = self.answer(self.client().renew_lock(request), ANSWER_MAX).await;
        if self.scope.lacks.renewal
            && answer.as_ref().is_err_and(|rejection| rejection.code() == Code::Unimplemented)
        {
            self.scope.missed.miss_renewal();
        }
        Ok(Renewal { ttl: self.read_duration(answer?.ttl)?, asked_at })
    }

    pub(crate) async fn unlock(&self, resource: &str, lock_id: &str) -> Answer<()> {
        self.unlock_raw(UnlockRequest {
            resource_id: resource.to_owned(),
            lock_id: lock_id.to_owned(),
            ..Default::default()
        })
        .await
    }

    pub(crate) async fn release(&self, grant: &Grant) -> Answer<()> {
        self.unlock(&grant.resource, &grant.lock_id).await
    }

    pub(crate) async fn force(&self, resource: &str) -> Answer<()> {
        self.unlock_raw(UnlockRequest {
            resource_id: resource.to_owned(),
            force: true,
            ..Default::default()
        })
        .await
    }

    pub(crate) async fn unlock_raw(&self, unlock: UnlockRequest) -> Answer<()> {
        let request = self.request(unlock.clone());
        self.answer(self.client().unlock(request), ANSWER_MAX).await?;
        if !unlock.force {
            self.scope.leftovers.note_unlock(&unlock.resource_id, &unlock.lock_id);
        }
        Ok(())
    }

    fn asked(&self, ask: &Ask) -> LockRequest {
        // Recorded before the answer, which may never arrive.
        self.scope.leftovers.note_grant(
            &self.instance,
            &ask.request.resource_id,
            &ask.request.lock_id,
        );
        ask.request.clone()
    }

    fn granted(&self, ask: &Ask, asked_at: Instant, response: LockResponse) -> Answer<Grant> {
        let answered_at = Instant::now();
        self.scope.leftovers.note_grant(
            &self.instance,
            &ask.request.resource_id,
            &response.lock_id,
        );
        Ok(Grant {
            resource: ask.request.resource_id.clone(),
            lock_id: response.lock_id,
            token: response.fencing_token,
            grant_id: response.grant_id,
            ttl: self.read_duration(response.ttl)?,
            waited: self.read_duration(response.waited)?,
            asked_at,
            answered_at,
        })
    }

    /// Limits the time of a call, so that a store without an answer fails the case
    /// instead of stopping the run.
    pub(crate) async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
        bound: Duration,
    ) -> Answer<T> {
        let lacks = self.scope.lacks;
        match tokio::time::timeout(bound, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Rejection::answered(status, lacks)),
            Err(_) => {
                let why = format!("the store gave no answer within {}", Readable(bound));
                Err(Rejection::unreadable(why, lacks))
            }
        }
    }

    /// Reads a duration of an answer; an absent one is zero, as always in protobuf.
    fn read_duration(&self, duration: Option<prost_types::Duration>) -> Answer<Duration> {
        let duration = duration.unwrap_or_default();
        Duration::try_from(duration).map_err(|_| {
            let prost_types::Duration { seconds, nanos } = duration;
            let why =
                format!("the store answered a duration of {seconds} seconds and {nanos} nanos");
            Rejection::unreadable(why, self.scope.lacks)
        })
    }

    fn client(&self) -> LockStoreClient<Http> {
        LockStoreClient::with_origin(self.instance.connection.http(), Connection::origin())
    }

    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(name) = &self.instance.name {
            request.metadata_mut().insert("x-component-instance", name.clone());
        }
        request
    }
}
