//! More calls than the limit.

use std::time::Duration;

use leasehold_proto::components::{
    LockRequest, LockStoreInitRequest, MetadataRequest, PingRequest,
    lock_store_client::LockStoreClient,
};
use leasehold_testkit::{leasehold::Leasehold, redis::RedisServer};
use tokio::{task::JoinSet, time::timeout};
use tonic::{Code, Status, transport::Endpoint};
use tonic_types::StatusExt as _;

use crate::target::PATIENCE;

/// The component's limit.
const SHORT_CALLS_MAX: usize = 10_000;

#[tokio::test]
async fn a_try_beyond_the_limit_is_refused_with_a_delay_and_the_others_are_answered() {
    let redis = RedisServer::start();
    let leasehold = Leasehold::serve("redis", &[]);
    let address = format!("unix://{}", leasehold.socket("redis").display());
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = LockStoreClient::new(channel);
    let items = [("redisHost", redis.address()), ("operationTimeout", "60s".to_owned())];
    let properties = items.map(|(key, value)| (key.to_owned(), value)).into();
    let metadata = Some(MetadataRequest { properties });
    client.init(LockStoreInitRequest { metadata }).await.unwrap();

    redis.process.suspend().unwrap();
    let mut tries = JoinSet::new();
    for nth in 0..SHORT_CALLS_MAX + 100 {
        let mut client = client.clone();
        let request = LockRequest { resource_id: format!("r{nth}"), ..Default::default() };
        tries.spawn(async move { client.try_lock(request).await.map(drop) });
    }
    // The calls beyond the limit are answered while the others are under way.
    for _ in 0..100 {
        let refused = timeout(PATIENCE, tries.join_next()).await.expect("a refusal");
        assert_overloaded(&refused.unwrap().unwrap().unwrap_err());
    }
    client.ping(PingRequest {}).await.unwrap();
    redis.process.resume().unwrap();
    let answers = timeout(2 * PATIENCE, tries.join_all()).await.expect("answers to all");
    assert_eq!(answers.len(), SHORT_CALLS_MAX);
    // The others wait only for the end of the outage.
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(refused.iter().all(|status| status.code() != Code::ResourceExhausted));
    let after = LockRequest { resource_id: "after".to_owned(), ..Default::default() };
    client.try_lock(after).await.unwrap();
    assert!(!leasehold.log().contains("panic"), "{}", leasehold.log());
}

fn assert_overloaded(status: &Status) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.get_details_error_info().unwrap().reason, "OVERLOADED");
    let retry = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(retry > Duration::ZERO);
}
