//! The store under test, as a case sees it.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use leasehold_proto::components::{
    FeaturesRequest, LockMode, LockRequest, LockResponse, LockStoreInitRequest,
    MetadataRequest, PingRequest, RenewLockRequest, UnlockRequest,
    lock_store_client::LockStoreClient,
};
use tokio::time::Instant;
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
};

use crate::{
    answer::{Answer, Rejection},
    connection::{Connection, Http},
    lacks::{Lacks, Missed},
    litter::Litter,
    waiter::Waiter,
    words::{Accepted, Told},
};

/// How long a call that waits for no lock may take: twice the protocol's
/// operation timeout, since the machine may be busy.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a wait without a deadline may take in a case.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a store may take to notice that a connection was cut.
const NOTICE: Duration = Duration::from_millis(250);

/// A request for a grant.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) request: LockRequest,
    /// The deadline given with a Lock; a TryLock has none.
    pub(crate) within: Option<Duration>,
}

impl Ask {
    pub(crate) fn of(resource: &str) -> Self {
        let request = LockRequest { resource_id: resource.to_owned(), ..Default::default() };
        Self { request, within: None }.ttl(Duration::from_secs(60))
    }

    pub(crate) fn ttl(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(to_wire(ttl));
        self
    }

    pub(crate) fn lock_id(mut self, lock_id: &str) -> Self {
        lock_id.clone_into(&mut self.request.lock_id);
        self
    }

    pub(crate) fn request_id(mut self, request_id: &str) -> Self {
        request_id.clone_into(&mut self.request.request_id);
        self
    }

    pub(crate) fn holder(mut self, holder: &str) -> Self {
        holder.clone_into(&mut self.request.holder);
        self
    }

    pub(crate) fn mode(mut self, mode: LockMode) -> Self {
        self.request.mode = mode.into();
        self
    }

    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }
}

/// A grant, with the moments between which it was made.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) resource: String,
    pub(crate) lock_id: String,
    pub(crate) token: i64,
    pub(crate) ttl: Duration,
    pub(crate) waited: Duration,
    /// Before the request was sent.
    pub(crate) asked_at: Instant,
    /// After the answer was there.
    pub(crate) told_at: Instant,
}

impl Accepted for Grant {
    fn told(&self) -> String {
        let Self { lock_id, token, ttl, .. } = self;
        format!(
            "a grant with the lock ID {lock_id}, the token {token} and a TTL of {}",
            Told(*ttl)
        )
    }
}

impl Grant {
    /// The moment before which nobody else may hold the resource, unless the
    /// grant is ended.
    pub(crate) fn lives_until(&self) -> Instant {
        self.asked_at + self.waited + self.ttl
    }
}

/// A renewal, with the moment before it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(crate) ttl: Duration,
    pub(crate) asked_at: Instant,
}

impl Accepted for Renewal {
    fn told(&self) -> String {
        format!("a renewal with a TTL of {}", Told(self.ttl))
    }
}

impl Renewal {
    /// As [`Grant::lives_until`].
    pub(crate) fn lives_until(&self) -> Instant {
        self.asked_at + self.ttl
    }
}

/// One instance of the store under test, over one connection.
#[derive(Clone)]
pub(crate) struct Store {
    connection: Connection,
    instance: Option<MetadataValue<Ascii>>,
    of: Arc<Scope>,
}

/// What all calls of one case share.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) lacks: Lacks,
    pub(crate) litter: Litter,
    pub(crate) missed: Missed,
}

impl Store {
    pub(crate) fn new(
        connection: Connection,
        instance: Option<MetadataValue<Ascii>>,
        of: Arc<Scope>,
    ) -> Self {
        Self { connection, instance, of }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Cuts the connection, and gives the store the time to notice: nothing in
    /// the protocol tells that it has, and a busy machine may let another
    /// connection's call overtake the news.
    pub(crate) async fn cut(&self) {
        self.connection.wire().cut();
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

    /// Starts a Lock and returns once it has surely arrived: it queues.
    /// Whoever asks later stands behind it.
    pub(crate) async fn queue(&self, ask: &Ask) -> anyhow::Result<Waiter> {
        let waiter = self.start(ask);
        waiter.arrive(self).await?;
        Ok(waiter)
    }

    /// Starts a Lock.
    pub(crate) fn start(&self, ask: &Ask) -> Waiter {
        let (store, ask) = (self.clone(), ask.clone());
        let resource = ask.request.resource_id.clone();
        let task = tokio::spawn(async move { store.lock(&ask).await });
        self.of.litter.started(task.abort_handle());
        Waiter::new(resource, task)
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
        if self.of.lacks.renewal
            && answer.as_ref().is_err_and(|rejection| rejection.code() == Code::Unimplemented)
        {
            self.of.missed.miss_renewal();
        }
        Ok(Renewal { ttl: self.told_duration(answer?.ttl)?, asked_at })
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
            self.of.litter.ended(&unlock.resource_id, &unlock.lock_id);
        }
        Ok(())
    }

    fn asked(&self, ask: &Ask) -> LockRequest {
        // Before the answer, since it may never be seen.
        self.of.litter.asked(self, &ask.request.resource_id, &ask.request.lock_id);
        ask.request.clone()
    }

    fn granted(&self, ask: &Ask, asked_at: Instant, response: LockResponse) -> Answer<Grant> {
        let told_at = Instant::now();
        self.of.litter.asked(self, &ask.request.resource_id, &response.lock_id);
        Ok(Grant {
            resource: ask.request.resource_id.clone(),
            lock_id: response.lock_id,
            token: response.fencing_token,
            ttl: self.told_duration(response.ttl)?,
            waited: self.told_duration(response.waited)?,
            asked_at,
            told_at,
        })
    }

    /// Bounds a call, so that a silent store fails the case and not the run.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
        bound: Duration,
    ) -> Answer<T> {
        let lacks = self.of.lacks;
        match tokio::time::timeout(bound, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Rejection::answered(status, lacks)),
            Err(_) => {
                let why = format!("the store gave no answer within {}", Told(bound));
                Err(Rejection::unreadable(why, lacks))
            }
        }
    }

    /// An absent duration in an answer is zero, as everywhere in protobuf.
    fn told_duration(&self, duration: Option<prost_types::Duration>) -> Answer<Duration> {
        let duration = duration.unwrap_or_default();
        Duration::try_from(duration).map_err(|_| {
            let prost_types::Duration { seconds, nanos } = duration;
            let why =
                format!("the store answered a duration of {seconds} seconds and {nanos} nanos");
            Rejection::unreadable(why, self.of.lacks)
        })
    }

    fn client(&self) -> LockStoreClient<Http> {
        LockStoreClient::with_origin(self.connection.http(), Connection::origin())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(instance) = &self.instance {
            request.metadata_mut().insert("x-component-instance", instance.clone());
        }
        request
    }
}

fn to_wire(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
