//! What is logged, and what never is.

use crate::{
    client::{Client, request},
    support::leasehold::Leasehold,
};

/// One life with secrets in every place that may hold one.
async fn life(arguments: &[&str]) -> (String, Vec<String>) {
    let leasehold = Leasehold::serve("memory", arguments);
    let client = Client::connect(&leasehold.socket("memory")).await;
    client.init(&[("password", "hunter2-secret")]).await.unwrap();
    let mut asked = request("r");
    asked.request_id = "request-secret".to_owned();
    let grant = client.try_lock_with(asked.clone()).await.unwrap();
    client.try_lock_with(request("r")).await.unwrap_err();
    client.renew("r", "lock-secret").await.unwrap_err();
    client.unlock("r", &grant.lock_id).await.unwrap();
    client.init(&[("password", "hunter2-secret"), ("ttl", "ttl-secret")]).await.unwrap_err();
    let secrets = ["hunter2-secret", "request-secret", "lock-secret", "ttl-secret"];
    let mut secrets: Vec<_> = secrets.map(ToOwned::to_owned).into();
    secrets.push(grant.lock_id);
    (leasehold.log(), secrets)
}

#[tokio::test]
async fn no_secret_is_logged_even_when_everything_else_is() {
    let (log, secrets) = life(&["--log-level", "debug"]).await;
    assert!(log.contains("initialised") && log.contains("refused"), "{log}");
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret} is in\n{log}");
    }
}

#[tokio::test]
async fn an_unknown_key_is_warned_of_without_its_value() {
    let (log, _) = life(&[]).await;
    assert!(log.contains("unknown metadata key") && log.contains("password"), "{log}");
}

#[tokio::test]
async fn every_line_is_json_on_request() {
    let (log, _) = life(&["--log-as-json", "--log-level", "debug"]).await;
    assert!(log.lines().count() > 2);
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
}
