//! Instances: made, replaced, kept.

use leasehold_testkit::leasehold::Leasehold;

use crate::client::{Client, fields, reason};

async fn memory() -> (Leasehold, Client) {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::connect(&leasehold.socket("memory")).await;
    (leasehold, client)
}

#[tokio::test]
async fn instances_of_memory_have_locks_of_their_own() {
    let (_leasehold, client) = memory().await;
    let (a, b) = (client.instance("a"), client.instance("b"));
    a.init(&[]).await.unwrap();
    b.init(&[]).await.unwrap();
    assert!(a.try_lock("r").await.is_ok());
    assert!(b.try_lock("r").await.is_ok());
    assert!(a.try_lock("r").await.is_err());
}

#[tokio::test]
async fn an_init_with_other_metadata_replaces() {
    let (_leasehold, client) = memory().await;
    client.init(&[("maxTTL", "1h")]).await.unwrap();
    assert!(client.try_lock("r").await.is_ok());
    client.init(&[("maxTTL", "10s")]).await.unwrap();
    assert_eq!(fields(&client.try_lock("r").await.unwrap_err()), ["ttl"]);
}

#[tokio::test]
async fn failed_inits_under_many_names_do_not_fill_the_table() {
    let (_leasehold, client) = memory().await;
    for at in 0..1_100 {
        let name: &'static str = Box::leak(format!("i{at}").into_boxed_str());
        let refused = client.instance(name).init(&[("ttl", "x")]).await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_METADATA", "Init {at}");
    }
}

#[tokio::test]
async fn one_instance_too_many_is_overloaded_and_the_others_go_on() {
    let (_leasehold, client) = memory().await;
    client.init(&[]).await.unwrap();
    let mut refusals = 0;
    for at in 0..1_000 {
        let name: &'static str = Box::leak(format!("i{at}").into_boxed_str());
        if let Err(refused) = client.instance(name).init(&[]).await {
            assert_eq!(reason(&refused), "OVERLOADED");
            refusals += 1;
        }
    }
    assert_eq!(refusals, 1);
    assert!(client.try_lock("r").await.is_ok());
}

#[tokio::test]
async fn a_wait_in_flight_is_granted_after_an_init_with_other_metadata() {
    let (_leasehold, client) = memory().await;
    client.init(&[]).await.unwrap();
    let grant = client.try_lock("r").await.unwrap();
    let waiting = client.waiting("r");
    client.queued("r", &waiting).await;
    client.init(&[("ttl", "10s")]).await.unwrap();
    client.unlock("r", &grant.lock_id).await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(client.renew("r", &next.lock_id).await.is_ok());
}

/// A memory store once began empty after it, so that a held lock got a second
/// holder.
/// Trap: memory 51, component 51
#[tokio::test]
async fn a_held_lock_stays_held_after_an_init_with_other_metadata() {
    let (_leasehold, client) = memory().await;
    client.init(&[]).await.unwrap();
    let grant = client.try_lock("r").await.unwrap();
    client.init(&[("ttl", "10s")]).await.unwrap();
    assert_eq!(reason(&client.try_lock("r").await.unwrap_err()), "RESOURCE_LOCKED");
    assert!(client.renew("r", &grant.lock_id).await.is_ok());
}

#[tokio::test]
async fn an_init_changes_how_many_may_wait() {
    let (_leasehold, client) = memory().await;
    client.init(&[]).await.unwrap();
    let _grant = client.try_lock("r").await.unwrap();
    let waiting = client.waiting("r");
    client.queued("r", &waiting).await;
    client.init(&[("maxWaiters", "1")]).await.unwrap();
    let refused = client.waiting("r").await.unwrap().unwrap_err();
    assert_eq!(reason(&refused), "TOO_MANY_WAITERS");
    waiting.abort();
}
