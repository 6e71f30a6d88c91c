//! alpha1 over gRPC: every row of Dapr's table.

use std::time::Duration;

use leasehold_proto::dapr::{
    GetMetadataRequest, TryLockRequest, UnlockRequest, dapr_client::DaprClient,
    unlock_response::Status as Unlocked,
};
use leasehold_sidecar::{Hooks, stores::Stores};
use tokio::time::{Instant, sleep};
use tonic::{Code, Status, transport::Channel};

use crate::harness::{APP, Harness, STORE, memory, named, options};

fn try_request(resource: &str, owner: &str, expiry: i32) -> TryLockRequest {
    TryLockRequest {
        store_name: STORE.into(),
        resource_id: resource.into(),
        lock_owner: owner.into(),
        expiry_in_seconds: expiry,
    }
}

fn unlock_request(resource: &str, owner: &str) -> UnlockRequest {
    UnlockRequest {
        store_name: STORE.into(),
        resource_id: resource.into(),
        lock_owner: owner.into(),
    }
}

async fn try_lock(dapr: &mut DaprClient<Channel>, resource: &str, owner: &str) -> bool {
    dapr.try_lock_alpha1(try_request(resource, owner, 60)).await.unwrap().into_inner().success
}

async fn unlock(dapr: &mut DaprClient<Channel>, resource: &str, owner: &str) -> Unlocked {
    let answer = dapr.unlock_alpha1(unlock_request(resource, owner)).await.unwrap();
    answer.into_inner().status()
}

fn error_of(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

#[tokio::test]
async fn a_lock_is_granted_held_and_given_back() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    assert!(try_lock(&mut dapr, "r", "a").await);
    assert!(!try_lock(&mut dapr, "r", "b").await);
    assert!(!try_lock(&mut dapr, "r", "a").await, "the same owner is refused too");
    assert_eq!(unlock(&mut dapr, "r", "b").await, Unlocked::LockBelongsToOthers);
    assert_eq!(unlock(&mut dapr, "r", "a").await, Unlocked::Success);
    assert_eq!(unlock(&mut dapr, "r", "a").await, Unlocked::LockDoesNotExist);
    assert!(try_lock(&mut dapr, "r", "b").await);
}

#[tokio::test]
async fn a_lock_expires() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    let (expiry, asked) = (Duration::from_secs(3), Instant::now());
    dapr.try_lock_alpha1(try_request("r", "a", 3)).await.unwrap();
    let early = try_lock(&mut dapr, "r", "b").await;
    // A busy machine may have taken so long.
    assert!(!early || asked.elapsed() >= expiry);
    sleep(expiry).await;
    assert!(early || try_lock(&mut dapr, "r", "b").await);
    assert_eq!(unlock(&mut dapr, "r", "a").await, Unlocked::LockBelongsToOthers);
}

/// Trap: sidecar 25
#[tokio::test]
async fn a_granted_try_carries_its_fencing_token_as_metadata() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let granted = dapr.try_lock_alpha1(try_request("r", "a", 60)).await.unwrap();
        let token = granted.metadata().get("leasehold-fencing-token").unwrap();
        tokens.push(token.to_str().unwrap().parse::<u64>().unwrap());
        let held = dapr.try_lock_alpha1(try_request("r", "b", 60)).await.unwrap();
        assert!(held.metadata().get("leasehold-fencing-token").is_none());
        unlock(&mut dapr, "r", "a").await;
    }
    assert!(tokens[1] > tokens[0], "{tokens:?}");
}

#[tokio::test]
async fn validation_has_daprs_order_words_and_codes() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    let bad = Code::InvalidArgument;
    for expiry in [0, -1] {
        let error = dapr.try_lock_alpha1(try_request("", "", expiry)).await.unwrap_err();
        assert_eq!(
            error_of(&error),
            (bad, "ExpiryInSeconds is not positive in lock store mem")
        );
    }
    let error = dapr.try_lock_alpha1(try_request("", "", 1)).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "ResourceId is empty in lock store mem"));
    let error = dapr.try_lock_alpha1(try_request("r", "", 1)).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "LockOwner is empty in lock store mem"));
    let request = TryLockRequest { store_name: "no".into(), ..try_request("a||b", "o", 1) };
    let error = dapr.try_lock_alpha1(request).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "lock store no not found"));
    let error = dapr.unlock_alpha1(unlock_request("", "")).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "ResourceId is empty in lock store mem"));
    let error = dapr.unlock_alpha1(unlock_request("r", "")).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "LockOwner is empty in lock store mem"));
    let request = UnlockRequest { store_name: "no".into(), ..unlock_request("r", "o") };
    let error = dapr.unlock_alpha1(request).await.unwrap_err();
    assert_eq!(error_of(&error), (bad, "lock store no not found"));
}

#[tokio::test]
async fn without_any_store_that_is_said_after_the_expiry() {
    let (memory, _) = memory();
    let harness = Harness::over(options(), Hooks::default(), Stores::default(), memory).await;
    let mut dapr = harness.dapr().await;
    let error = dapr.try_lock_alpha1(try_request("", "", 0)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let none = (Code::FailedPrecondition, "lock store is not configured");
    let error = dapr.try_lock_alpha1(try_request("", "", 1)).await.unwrap_err();
    assert_eq!(error_of(&error), none);
    let error = dapr.unlock_alpha1(unlock_request("", "")).await.unwrap_err();
    assert_eq!(error_of(&error), none);
}

#[tokio::test]
async fn a_separator_in_the_resource_is_refused_in_daprs_words() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    let error = dapr.try_lock_alpha1(try_request("a||b", "o", 1)).await.unwrap_err();
    let why = "input key/keyPrefix 'a||b' can't contain '||'";
    let message = format!("failed to try acquiring lock: {why}");
    assert_eq!(error_of(&error), (Code::Internal, &*message));
    let error = dapr.unlock_alpha1(unlock_request("a||b", "o")).await.unwrap_err();
    let message = format!("failed to release lock: {why}");
    assert_eq!(error_of(&error), (Code::Internal, &*message));
}

#[tokio::test]
async fn what_only_our_limits_refuse_is_a_failed_try_or_unlock() {
    let harness = Harness::start().await;
    let mut dapr = harness.dapr().await;
    let long = "x".repeat(1025);
    for request in [
        try_request(&long, "o", 1),
        try_request("r", &long, 1),
        try_request("r\n", "o", 1),
        try_request("r", "o", i32::MAX),
    ] {
        let error = dapr.try_lock_alpha1(request).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.message().starts_with("failed to try acquiring lock: "), "{error}");
    }
    for request in [unlock_request(&long, "o"), unlock_request("r", &long)] {
        let error = dapr.unlock_alpha1(request).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.message().starts_with("failed to release lock: "), "{error}");
    }
}

#[tokio::test]
async fn resources_are_prefixed_as_daprd_prefixes_them() {
    let (memory, store) = memory();
    let stores = Stores::default();
    for (name, prefix) in [(STORE, "none"), ("other", "name")] {
        stores.insert(named(name, prefix, APP, store.clone()));
    }
    let harness = Harness::over(options(), Hooks::default(), stores, memory).await;
    let mut dapr = harness.dapr().await;
    assert!(try_lock(&mut dapr, "r", "a").await);
    let request = TryLockRequest { store_name: "other".into(), ..try_request("r", "a", 60) };
    let other = dapr.try_lock_alpha1(request).await.unwrap().into_inner();
    assert!(other.success, "another prefix is another resource");
    let unlock = |resource: &str| {
        let (resource, lock_id) = (resource.parse().unwrap(), "a".parse().unwrap());
        leasehold_lock::UnlockRequest::owner(resource, lock_id)
    };
    store.unlock(unlock("lock||r")).await.unwrap();
    store.unlock(unlock("lock||other||r")).await.unwrap();
}

#[tokio::test]
async fn metadata_is_answered_so_that_sdks_start() {
    let harness = Harness::start().await;
    let metadata =
        harness.dapr().await.get_metadata(GetMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!(metadata.id, "app");
    let component = &metadata.registered_components[0];
    assert_eq!((&*component.name, &*component.r#type), (STORE, "lock.memory"));
    assert!(!metadata.runtime_version.is_empty());
}
