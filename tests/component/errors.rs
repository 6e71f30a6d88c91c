//! Errors that the conformance suite does not cover: instance names and limits.

use leasehold_testkit::leasehold::Leasehold;
use tonic::Code;

use crate::client::{Client, fields, reason};

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
