//! Invalid input: each error names its field, and nothing changes.

use leasehold_proto::components::LockRequest;
use leasehold_testkit::leasehold::Leasehold;
use tonic::Code;

use crate::client::{Client, fields, reason, request};

async fn refused(change: impl FnOnce(&mut LockRequest)) -> (Code, String, Vec<String>) {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let mut bad = request("r");
    change(&mut bad);
    let status = client.try_lock_with(bad).await.unwrap_err();
    client.try_lock("r").await.expect("a refused request changes nothing");
    (status.code(), reason(&status), fields(&status))
}

fn blamed(field: &str) -> (Code, String, Vec<String>) {
    (Code::InvalidArgument, "INVALID_REQUEST".to_owned(), vec![field.to_owned()])
}

#[tokio::test]
async fn an_empty_resource_is_blamed_on_resource_id() {
    assert_eq!(refused(|bad| bad.resource_id.clear()).await, blamed("resource_id"));
}

#[tokio::test]
async fn a_control_character_is_blamed_on_resource_id() {
    assert_eq!(refused(|bad| bad.resource_id.push('\u{1}')).await, blamed("resource_id"));
}

#[tokio::test]
async fn a_ttl_of_two_signs_is_blamed_on_ttl() {
    let ttl = prost_types::Duration { seconds: 1, nanos: -1 };
    assert_eq!(refused(|bad| bad.ttl = Some(ttl)).await, blamed("ttl"));
}

#[tokio::test]
async fn a_ttl_above_the_maximum_is_blamed_on_ttl() {
    let ttl = prost_types::Duration { seconds: 86_401, nanos: 0 };
    assert_eq!(refused(|bad| bad.ttl = Some(ttl)).await, blamed("ttl"));
}

#[tokio::test]
async fn an_unknown_mode_is_blamed_on_mode() {
    assert_eq!(refused(|bad| bad.mode = 7).await, blamed("mode"));
}

#[tokio::test]
async fn a_long_lock_id_is_blamed_on_lock_id() {
    assert_eq!(refused(|bad| bad.lock_id = "l".repeat(257)).await, blamed("lock_id"));
}

#[tokio::test]
async fn a_long_request_id_is_blamed_on_request_id() {
    assert_eq!(refused(|bad| bad.request_id = "q".repeat(257)).await, blamed("request_id"));
}

#[tokio::test]
async fn a_long_holder_is_blamed_on_holder() {
    assert_eq!(refused(|bad| bad.holder = "h".repeat(257)).await, blamed("holder"));
}

#[tokio::test]
async fn a_long_instance_is_blamed_on_its_metadata() {
    let leasehold = Leasehold::serve("memory", &[]);
    let name: &'static str = Box::leak("i".repeat(257).into_boxed_str());
    let client = Client::connect(&leasehold.socket("memory")).await.instance(name);
    let status = client.try_lock("r").await.unwrap_err();
    assert_eq!(fields(&status), ["x-component-instance"]);
}

#[tokio::test]
async fn a_waiter_beyond_the_limit_is_refused_as_such() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::connect(&leasehold.socket("memory")).await;
    client.init(&[("maxWaiters", "1")]).await.unwrap();
    client.try_lock("r").await.unwrap();
    // Whichever comes first waits on.
    let (first, second) = (client.waiting("r"), client.waiting("r"));
    let refused = tokio::select! {
        answer = first => answer,
        answer = second => answer,
    };
    let status = refused.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason(&status), "TOO_MANY_WAITERS");
}
