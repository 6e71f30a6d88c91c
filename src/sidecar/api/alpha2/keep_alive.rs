//! LockKeepAlive: the renewals of many locks over one stream.

use futures_util::{Stream, StreamExt as _, stream::once};
use leasehold_lock::LockError;
use leasehold_net::{status::ErrorDescription, wire::duration};
use leasehold_proto::locks as proto;
use tonic::Status;

use super::Locks;

/// How many requests of one stream may be under way. At the limit no more are read.
const IN_FLIGHT_MAX: usize = 1024;

/// The answers to the requests of a stream, in order of completion. The stream ends when
/// the requests end, and with `SHUTTING_DOWN` when the sidecar drains. Dropping it changes
/// no lock.
pub(super) fn answers<Requests>(
    locks: Locks,
    requests: Requests,
) -> impl Stream<Item = Result<proto::LockKeepAliveResponse, Status>> + Send
where
    Requests: Stream<Item = Result<proto::LockKeepAliveRequest, Status>> + Send,
{
    let engine = locks.engine().clone();
    let draining = engine.clone();
    let drained = async move { draining.draining().await };
    // Requests that were read before the drain are still answered.
    let answers = requests
        .take_until(drained)
        .map(move |request| {
            let locks = locks.clone();
            async move { Ok(answer(&locks, request?).await) }
        })
        .buffer_unordered(IN_FLIGHT_MAX);
    let end = once(async move {
        let is_draining = engine.is_draining();
        is_draining.then(|| Err(ErrorDescription::from(LockError::ShuttingDown).into()))
    });
    answers.chain(end.filter_map(std::future::ready))
}

async fn answer(
    locks: &Locks,
    request: proto::LockKeepAliveRequest,
) -> proto::LockKeepAliveResponse {
    let id = request.id;
    let renewal = proto::RenewLockRequest {
        store_name: request.store_name,
        resource_id: request.resource_id,
        namespace: request.namespace,
        lock_id: request.lock_id,
        ttl: request.ttl,
        ..Default::default()
    };
    match locks.renew_lock(renewal).await.map_err(ErrorDescription::from) {
        Ok(ttl) => {
            proto::LockKeepAliveResponse { id, ttl: Some(duration(ttl)), ..Default::default() }
        }
        Err(error) => proto::LockKeepAliveResponse {
            id,
            ttl: None,
            reason: error.reason.to_owned(),
            held: error.metadata.iter().any(|(key, value)| *key == "held" && value == "true"),
            message: error.message,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream::{self, poll_fn};
    use leasehold_held::{Engine, EngineOptions};
    use leasehold_lock::Store;
    use leasehold_memory::Memory;
    use leasehold_testing::scripted::{Fault, Script, Scripted};
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::{identity::Identity, stores::Stores, tests::named};

    fn locks() -> (Locks, Arc<Script>) {
        let stores = Stores::default();
        let (backend, script, settings) = Scripted::new(Memory::new);
        let store = Store::new(Arc::new(backend), settings);
        stores.insert(named("s", store));
        let (notices, _) = mpsc::channel(1);
        let engine = Engine::start(EngineOptions::default(), watch::channel(true).1, notices);
        let identity = Identity::new("app", &"instance".parse().unwrap());
        (Locks::new(stores, engine, identity), script)
    }

    fn request(id: u64) -> proto::LockKeepAliveRequest {
        proto::LockKeepAliveRequest {
            id,
            store_name: "s".into(),
            resource_id: "r".into(),
            lock_id: "elsewhere".into(),
            ..Default::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn at_1024_requests_in_flight_reading_stops() {
        let (locks, script) = locks();
        script.on_every_renewal(Some(Fault::Silent));
        let mut read = 0;
        let requests = poll_fn(|_| {
            read += 1;
            std::task::Poll::Ready(Some(Ok(request(read))))
        });
        {
            let mut answers = std::pin::pin!(answers(locks, requests));
            let answer = answers.next();
            let within = tokio::time::timeout(std::time::Duration::from_secs(1), answer).await;
            assert!(within.is_err(), "nothing is answered");
        }
        assert_eq!(read, 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_renewal_delays_no_other() {
        let (locks, script) = locks();
        script.on_renewal(Fault::Delayed(std::time::Duration::from_secs(3)));
        let requests = stream::iter([Ok(request(1)), Ok(request(2))]);
        let answers = answers(locks, requests).map(|answer| answer.unwrap().id);
        assert_eq!(answers.collect::<Vec<_>>().await, [2, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_answers_what_was_read_and_ends_the_stream() {
        let (locks, script) = locks();
        script.on_renewal(Fault::Delayed(std::time::Duration::from_secs(3)));
        let requests = stream::iter([Ok(request(1))]).chain(stream::pending());
        let mut answers = std::pin::pin!(answers(locks.clone(), requests));
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), answers.next());
        assert!(waiting.await.is_err());
        locks.engine().drain();
        assert_eq!(answers.next().await.unwrap().unwrap().id, 1);
        let end = answers.next().await.unwrap().unwrap_err();
        assert_eq!(end.code(), tonic::Code::Unavailable);
        assert!(answers.next().await.is_none());
    }
}
