//! What others are shown as the holder: the app, its instance, and a label.

use std::path::Path;

use leasehold_proto::{dapr::TryLockRequest, locks::LockRequest};
use serde_json::json;

use crate::{
    alpha2_grpc::request,
    binary::{Binary, component},
    harness::{HOLDER, Harness, STORE, reason},
};

const PATH: &str = "/v1.0-alpha2/lock/mem/r";

/// Who holds the resource `r`.
async fn holder(harness: &Harness) -> String {
    let refused = harness.locks().await.lock(request("r")).await.unwrap_err();
    reason(&refused, "holder").1.unwrap()
}

#[tokio::test]
async fn a_label_is_the_last_part_of_the_holder() {
    let harness = Harness::start().await;
    let labelled = LockRequest { label: "import/ü".into(), ..request("r") };
    harness.locks().await.lock(labelled).await.unwrap();
    assert_eq!(holder(&harness).await, format!("{HOLDER}/import/ü"));
}

#[tokio::test]
async fn a_label_is_given_over_http_too() {
    let harness = Harness::start().await;
    let body = json!({ "immediate": true, "label": "nightly" }).to_string();
    assert_eq!(harness.post(PATH, body).await.status, 200);
    assert_eq!(holder(&harness).await, format!("{HOLDER}/nightly"));
}

#[tokio::test]
async fn a_holder_of_alpha1_is_the_app_and_its_instance() {
    let harness = Harness::start().await;
    let attempt = TryLockRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        lock_owner: "me".into(),
        expiry_in_seconds: 30,
    };
    let granted = harness.dapr().await.try_lock_alpha1(attempt).await.unwrap();
    assert!(granted.into_inner().success);
    assert_eq!(holder(&harness).await, HOLDER);
}

/// Who holds a lock of the real sidecar, which is started with these.
async fn holder_of_binary(arguments: &[&str], variables: &[(&str, &Path)]) -> String {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "mem", "lock.memory", "[]");
    let sidecar = Binary::start_with(yaml.path(), arguments, variables).await;
    let body = r#"{"immediate":true}"#;
    assert_eq!(sidecar.post(PATH, body).await.status, 200);
    let refused = sidecar.post(PATH, body).await.json();
    refused["details"][0]["metadata"]["holder"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_instance_is_that_of_the_command_line_else_the_pod() {
    let pod = [("POD_NAME", Path::new("orders-7f"))];
    assert_eq!(holder_of_binary(&[], &pod).await, "app/orders-7f");
    assert_eq!(holder_of_binary(&["--instance", "blue"], &pod).await, "app/blue");
}

#[tokio::test]
async fn without_a_pod_the_instance_is_the_name_of_the_machine() {
    let holder = holder_of_binary(&[], &[("POD_NAME", Path::new(""))]).await;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(holder, format!("app/{}", machine.trim()));
}
