//! What is logged, and what must never be.

use std::{os::unix::fs::MetadataExt as _, time::Duration};

use leasehold_proto::components::LockRequest;
use leasehold_testkit::{leasehold::Leasehold, proxy::Proxy, redis::RedisServer};

use crate::client::{Client, eventually, request};

const PATIENCE: Duration = Duration::from_secs(20);

/// A whole run with secrets in every field that may contain one.
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
    drop(client);
    (leasehold.whole_log(), secrets)
}

#[tokio::test]
async fn no_secret_is_logged_even_when_everything_else_is() {
    let (log, secrets) = life(&["--log-level", "debug"]).await;
    for part in ["initialised", "refused", "answered call=\"Unlock\""] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
    for secret in secrets {
        assert!(!log.contains(&secret), "{secret} is in\n{log}");
    }
}

#[tokio::test]
async fn a_force_is_logged_with_its_caller_and_whom_it_ended() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::initialised(&leasehold.socket("memory")).await;
    let asked = LockRequest { holder: "host-7".into(), ..request("r") };
    let grant = client.try_lock_with(asked).await.unwrap();
    client.force("r").await.unwrap();
    drop(client);
    let (uid, pid) = (std::fs::metadata("/proc/self").unwrap().uid(), std::process::id());
    let log = leasehold.whole_log();
    let part = format!(
        "unlocked by force store=\"locks\" resource=\"r\" holder=\"host-7\" \
         grant_id=\"{}\" uid={uid} pid={pid}",
        grant.grant_id
    );
    assert!(log.contains(&part), "{part} is not in\n{log}");
}

#[tokio::test]
async fn an_unknown_key_is_warned_of_without_its_value() {
    let (log, _) = life(&[]).await;
    assert!(log.contains("unknown metadata key") && log.contains("password"), "{log}");
}

#[tokio::test]
async fn an_instance_is_logged_once() {
    let leasehold = Leasehold::serve("memory", &[]);
    let client = Client::connect(&leasehold.socket("memory")).await;
    for ttl in ["10s", "20s", "30s"] {
        client.init(&[("ttl", ttl)]).await.unwrap();
    }
    drop(client);
    let log = leasehold.whole_log();
    assert_eq!(log.matches("initialised").count(), 1, "{log}");
}

#[tokio::test]
async fn a_password_that_the_server_does_not_ask_for_is_warned_of() {
    let server = RedisServer::start();
    let leasehold = Leasehold::serve("redis", &[]);
    let client = Client::connect(&leasehold.socket("redis")).await;
    let address = server.address();
    client.init(&[("redisHost", &address)]).await.unwrap();
    assert!(!leasehold.log().contains("redisPassword"));
    let items = [("redisHost", &*address), ("redisPassword", "hunter2-secret")];
    client.init(&items).await.unwrap();
    drop(client);
    let log = leasehold.whole_log();
    assert!(log.contains("redisPassword is set, but the server asks for none"), "{log}");
    assert!(!log.contains("hunter2-secret"), "{log}");
}

#[tokio::test]
async fn a_server_that_evicts_locks_is_warned_of() {
    for (policy, warns) in [("allkeys-lru", true), ("noeviction", false)] {
        let server = RedisServer::start_with(&["--maxmemory-policy", policy]);
        let leasehold = Leasehold::serve("redis", &[]);
        let client = Client::connect(&leasehold.socket("redis")).await;
        client.init(&[("redisHost", &server.address())]).await.unwrap();
        drop(client);
        let log = leasehold.whole_log();
        assert_eq!(log.contains("maxmemory-policy"), warns, "{log}");
    }
}

#[tokio::test]
async fn every_line_is_json_on_request() {
    let (log, _) = life(&["--log-as-json", "--log-level", "debug"]).await;
    assert!(log.lines().count() > 2);
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
}

/// The caller of a force may be killed while the store is slow.
#[tokio::test]
async fn a_force_is_logged_though_its_caller_has_gone() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let leasehold = Leasehold::serve("redis", &[]);
    let client = Client::connect(&leasehold.socket("redis")).await;
    let direct = client.instance("direct");
    direct.init(&[("redisHost", &server.address())]).await.unwrap();
    client.init(&[("redisHost", proxy.address()), ("operationTimeout", "60s")]).await.unwrap();
    client.try_lock("r").await.unwrap();
    proxy.delay_replies(Duration::from_secs(2));
    let forcing = tokio::spawn({
        let client = client.clone();
        async move { client.force("r").await }
    });
    eventually(PATIENCE, "the force takes effect", async || direct.try_lock("r").await.ok())
        .await;
    forcing.abort();
    // It is answered after the server has read the end of the first call.
    direct.try_lock("r").await.unwrap_err();
    let logged = async || leasehold.log().contains("unlocked by force").then_some(());
    eventually(PATIENCE, "the force is logged", logged).await;
}
