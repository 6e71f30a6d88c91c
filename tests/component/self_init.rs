//! Instances that initialise themselves from component YAML.

use std::{fs, time::Duration};

use leasehold_testkit::leasehold::Leasehold;
use tempfile::TempDir;

use crate::client::{Client, eventually, fields, reason};

fn yaml(items: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\nspec:\n  \
         type: lock.memory\n  version: v1\n  metadata: [{items}]\n"
    );
    fs::write(folder.path().join("locks.yaml"), text).unwrap();
    folder
}

fn serve(folder: &TempDir) -> Leasehold {
    Leasehold::serve("memory", &["--resources-path", folder.path().to_str().unwrap()])
}

async fn ready(client: &Client) {
    eventually(Duration::from_secs(20), "initialised", async || {
        client.try_lock("ready").await.ok()
    })
    .await;
}

#[tokio::test]
async fn an_instance_of_the_folder_needs_no_init() {
    let folder = yaml("{name: maxTTL, value: 90s}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    ready(&client).await;
    assert!(client.try_lock("r").await.is_ok());
}

/// A call during the initialisation was once answered NOT_INITIALIZED.
#[tokio::test]
async fn the_first_call_waits_until_the_instance_is_ready() {
    let folder = yaml("{name: maxTTL, value: 90s}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    assert!(client.try_lock("r").await.is_ok());
}

#[tokio::test]
async fn its_metadata_are_in_force() {
    let folder = yaml("{name: maxTTL, value: 30s}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    eventually(Duration::from_secs(20), "the limit of 30 s", async || {
        let refused = client.try_lock("r").await.unwrap_err();
        (reason(&refused) == "INVALID_REQUEST" && fields(&refused) == ["ttl"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn dapr_s_init_with_the_same_metadata_keeps_its_locks() {
    let folder = yaml("{name: maxTTL, value: 90s}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    ready(&client).await;
    let grant = client.try_lock("r").await.unwrap();
    client.init(&[("maxTTL", "90s")]).await.unwrap();
    assert!(client.renew("r", &grant.lock_id).await.is_ok());
}

#[tokio::test]
async fn one_that_needs_a_secret_store_waits_for_init() {
    let folder = yaml("{name: ttl, secretKeyRef: {name: s, key: k}}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    assert_eq!(reason(&client.try_lock("r").await.unwrap_err()), "NOT_INITIALIZED");
    client.init(&[]).await.unwrap();
    assert!(client.try_lock("r").await.is_ok());
}

#[tokio::test]
async fn one_that_needs_the_app_id_waits_for_init() {
    let folder = yaml("{name: keyPrefix, value: 'x-{appID}'}");
    let leasehold = serve(&folder);
    let client = Client::connect(&leasehold.socket("memory")).await;
    assert_eq!(reason(&client.try_lock("r").await.unwrap_err()), "NOT_INITIALIZED");
}

#[test]
fn wrong_metadata_are_a_wrong_configuration_with_every_mistake_named() {
    let folder = yaml("{name: ttl, value: x}, {name: maxTTL, value: y}");
    let path = folder.path().to_str().unwrap();
    let mut leasehold =
        Leasehold::spawn(&["serve", "--store", "memory", "--resources-path", path]);
    assert_eq!(leasehold.exited().code(), Some(64));
    let log = leasehold.log();
    assert!(
        log.contains("ttl") && log.contains("maxTTL") && log.contains("locks.yaml"),
        "{log}"
    );
}

#[test]
fn broken_yaml_is_a_wrong_configuration() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.yaml"), "kind: [").unwrap();
    let path = folder.path().to_str().unwrap();
    let mut leasehold =
        Leasehold::spawn(&["serve", "--store", "memory", "--resources-path", path]);
    assert_eq!(leasehold.exited().code(), Some(64));
    assert!(leasehold.log().contains("broken.yaml"), "{}", leasehold.log());
}
