//! Parts that only the command connects: component YAML and its changes, the
//! daprd behind, pluggable stores behind their sockets.

use std::{fs, path::Path, time::Duration};

use axum::body::{Body, Bytes};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use leasehold_proto::locks::{LockRequest, RenewLockRequest, locks_client::LocksClient};
use leasehold_testkit::{
    leasehold::Leasehold, ports::free_port, process::Signal, redis::RedisServer,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    binary::{Binary, component},
    harness::{Answer, PATIENCE},
    stand_in::{Seen, StandIn, channel_body, data, send, trailers},
};

const LOCK: &str = "/v1.0-alpha2/lock/locks/r";
const IMMEDIATE: &str = r#"{"immediate":true}"#;

fn yaml_of_memory() -> TempDir {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.memory", "[]");
    yaml
}

/// Locks and unlocks until locking has the expected answer.
async fn until(sidecar: &Binary, expected: impl Fn(&Answer) -> bool) -> Answer {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let answer = sidecar.post(LOCK, IMMEDIATE).await;
        if answer.status == 200 {
            let held = json!({ "lockID": answer.json()["lockID"] });
            let unlocked = sidecar.call(Method::DELETE, LOCK, held.to_string()).await;
            assert_eq!(unlocked.status, 204);
        }
        if expected(&answer) {
            return answer;
        }
        assert!(Instant::now() < give_up, "{answer:?}; log:\n{}", sidecar.log());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn other_grpc_calls_reach_the_daprd_behind() {
    let (mut daprd, yaml) = (StandIn::start().await, yaml_of_memory());
    let endpoint = daprd.address.to_string();
    let sidecar = Binary::start(yaml.path(), &["--daprd-grpc-endpoint", &endpoint]).await;
    let (sender, body) = channel_body();
    sender.send(data("reply")).await.unwrap();
    sender.send(trailers(&[("grpc-status", "0"), ("x-trailing", "t")])).await.unwrap();
    drop(sender);
    let answer = Response::builder().header("content-type", "application/grpc");
    daprd.answer(answer.header("x-initial", "i").body(body).unwrap()).await;

    // daprd's own if one is configured, though served here otherwise.
    let path = "/dapr.proto.runtime.v1.Dapr/GetMetadata";
    let call = Request::post(format!("http://{}{path}", sidecar.grpc))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-mine", "m")
        .body(Body::from("\0\0\0\0\0"))
        .unwrap();
    let reply = send(true, call).await;

    let head = daprd.head().await;
    assert_eq!((head.uri.path(), &head.headers["x-mine"]), (path, &"m".parse().unwrap()));
    assert_eq!(daprd.body().await.0, b"\0\0\0\0\0");
    assert_eq!(reply.headers()["x-initial"], "i");
    let reply = reply.into_body().collect().await.unwrap();
    assert_eq!(reply.trailers().unwrap()["x-trailing"], "t");
    assert_eq!(reply.to_bytes(), "reply");
}

/// The kernel accepts its connections, and nobody reads them.
#[tokio::test]
async fn locks_are_renewed_beside_calls_to_a_daprd_that_stands_still() {
    let (daprd, yaml) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), yaml_of_memory());
    let endpoint = daprd.local_addr().unwrap().to_string();
    let sidecar = Binary::start(yaml.path(), &["--daprd-grpc-endpoint", &endpoint]).await;
    let connection = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let origin = Uri::try_from(format!("http://{}", sidecar.grpc)).unwrap();
    let mut locks = LocksClient::with_origin(connection.clone(), origin.clone());
    let (store_name, resource_id) = ("locks".to_owned(), "r".to_owned());
    let asked = LockRequest { store_name, resource_id, immediate: true, ..Default::default() };
    let lock_id = locks.lock(asked.clone()).await.unwrap().into_inner().lock_id;
    let LockRequest { store_name, resource_id, .. } = asked;
    let renewal = RenewLockRequest { store_name, resource_id, lock_id, ..Default::default() };
    let mut passed = JoinSet::new();
    for _ in 0..100 {
        let body = tonic::body::Body::new(Full::new(Bytes::from(vec![0; 1_200_000])));
        let call = Request::post(format!("{origin}dapr.proto.runtime.v1.Dapr/InvokeService"));
        let call = call.header("content-type", "application/grpc").body(body).unwrap();
        passed.spawn(connection.request(call));
        let renewed = timeout(PATIENCE, locks.renew_lock(renewal.clone())).await;
        renewed.expect("a renewal waits for bodies that nobody reads").unwrap();
    }
}

#[tokio::test]
async fn other_http_calls_reach_the_daprd_behind_and_locks_do_not() {
    let (mut daprd, yaml) = (StandIn::start().await, yaml_of_memory());
    let endpoint = format!("http://{}", daprd.address);
    let sidecar = Binary::start(yaml.path(), &["--daprd-http-endpoint", &endpoint]).await;
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 200);
    let alpha1 = r#"{"resourceId":"a","lockOwner":"o","expiryInSeconds":5}"#;
    let granted = sidecar.post("/v1.0-alpha1/lock/locks", alpha1).await;
    assert_eq!(granted.json(), json!({ "success": true }));
    for (method, path) in [
        (Method::PUT, "/v1.0/state/s/a%2Fb?metadata.x=1"),
        (Method::GET, "/v1.0/metadata"),
        (Method::GET, "/v1.0/healthz/outbound"),
    ] {
        let made = Response::builder().status(207).header("x-daprd", "d");
        daprd.answer(made.body(Body::from("made")).unwrap()).await;
        let answer = sidecar.call(method.clone(), path, "sent").await;
        let head = daprd.head().await;
        assert_eq!(
            (&head.method, head.uri.path_and_query().unwrap().as_str()),
            (&method, path)
        );
        assert_eq!(daprd.body().await.0, b"sent");
        assert_eq!((answer.status.as_u16(), &*answer.body), (207, &b"made"[..]));
        assert_eq!(answer.headers["x-daprd"], "d");
    }
}

#[tokio::test]
async fn a_secret_of_component_yaml_is_asked_of_the_daprd_behind() {
    let (mut daprd, yaml) = (StandIn::start().await, tempfile::tempdir().unwrap());
    let secret = "[{name: ttl, secretKeyRef: {name: times, key: long}}]";
    component(yaml.path(), "locks", "lock.memory", secret);
    daprd.answer(Response::new(Body::from(r#"{"long":"77s"}"#))).await;
    let endpoint = daprd.address.to_string();
    let arguments = ["--daprd-http-endpoint", &endpoint];
    let token = [("DAPR_API_TOKEN", Path::new("let-me-in"))];
    let sidecar = Binary::start_with(yaml.path(), &arguments, &token).await;
    let head = daprd.head().await;
    assert_eq!(head.uri.path(), "/v1.0/secrets/vault/times");
    assert_eq!(head.headers["dapr-api-token"], "let-me-in");
    assert!(matches!(daprd.next().await, Seen::EndOfRequest));

    assert_eq!(sidecar.post(LOCK, "").await.status, 401);
    let call = Request::post(format!("http://{}{LOCK}", sidecar.http))
        .header("dapr-api-token", "let-me-in")
        .body(Body::empty())
        .unwrap();
    let granted = Answer::read(send(false, call).await).await;
    assert_eq!(granted.json()["ttl"], "1m17s");
    assert!(!sidecar.log().contains("let-me-in"));
}

/// The folder of the sockets is found through each of its variables, and
/// through the flag.
#[tokio::test]
async fn a_pluggable_store_is_reached_through_its_socket() {
    let other = Leasehold::spawn(&["serve", "--store", "memory=other"]);
    other.ready("other");
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.other", "[{name: ttl, value: 44s}]");
    for variable in [
        "DAPR_COMPONENTS_SOCKETS_FOLDER",
        "DAPR_COMPONENT_SOCKETS_FOLDER",
        "DAPR_COMPONENT_SOCKET_FOLDER",
    ] {
        let variables = [(variable, other.folder())];
        let sidecar = Binary::start_with(yaml.path(), &[], &variables).await;
        let granted = until(&sidecar, |answer| answer.status == 200).await;
        assert_eq!(granted.json()["ttl"], "44s", "{variable}");
    }
    let folder = other.folder().to_str().unwrap();
    let elsewhere = [("DAPR_COMPONENTS_SOCKETS_FOLDER", yaml.path())];
    let flag = ["--socket-folder", folder];
    let sidecar = Binary::start_with(yaml.path(), &flag, &elsewhere).await;
    let held = sidecar.post(LOCK, IMMEDIATE).await;
    assert_eq!(held.status, 200);
    let again = sidecar.post(LOCK, IMMEDIATE).await;
    assert_eq!(again.error(), (409, "ERR_RESOURCE_LOCKED".into()));
    let forced = sidecar.call(Method::DELETE, LOCK, r#"{"force":true}"#).await;
    assert_eq!(forced.status, 204);
    let give_up = Instant::now() + PATIENCE;
    while sidecar.log().matches("a held lock is lost").count() != 1 {
        assert!(Instant::now() < give_up, "log:\n{}", sidecar.log());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn without_a_store_it_is_said_what_was_skipped_and_why() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "state", "state.redis", "[]");
    let scoped = yaml.path().join("scoped.yaml");
    let text = fs::read_to_string(yaml.path().join("state.yaml")).unwrap();
    let text = text.replace("state.redis", "lock.memory").replace("state", "scoped");
    fs::write(scoped, format!("{text}scopes: [other]\n")).unwrap();
    let sidecar = Binary::start(yaml.path(), &[]).await;
    let log = sidecar.log();
    for part in [
        "scoped.yaml, document 1) has the scopes [\"other\"], and --app-id is \"app\"",
        "state.yaml, document 1) is of no type lock.NAME",
    ] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
    assert!(!log.contains("give --resources-path"), "{log}");
}

#[tokio::test]
async fn a_component_that_appears_is_loaded() {
    let yaml = tempfile::tempdir().unwrap();
    let sidecar = Binary::start(yaml.path(), &[]).await;
    until(&sidecar, |answer| answer.error() == (400, "ERR_STORES_NOT_CONFIGURED".into())).await;
    component(yaml.path(), "locks", "lock.memory", "[{name: ttl, value: soon}]");
    logged(&sidecar, "the component is not loaded until its YAML changes").await;
    component(yaml.path(), "locks", "lock.memory", "[{name: ttl, value: 33s}]");
    until(&sidecar, |answer| answer.status == 200 && answer.json()["ttl"] == "33s").await;
}

/// The store that replaced the first once knew nothing of the grants of the first, and some
/// callers stayed with the first.
/// Trap: sidecar 51
#[tokio::test]
async fn a_component_file_that_is_replaced_emptied_and_put_back_leaves_one_store_that_excludes()
{
    let yaml = yaml_of_memory();
    let sidecar = Binary::start(yaml.path(), &[]).await;
    let granted = Instant::now();
    let held = sidecar.post(LOCK, r#"{"immediate":true,"ttl":"8s"}"#).await;
    assert_eq!(held.status, 200);
    let excludes = async |line: &str| {
        logged(&sidecar, line).await;
        assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 409, "{line}");
    };
    let apply = "its lock store goes on unchanged: restart the sidecar to apply";
    component(yaml.path(), "locks", "lock.redis", "[{name: redisHost, value: x:1}]");
    excludes(&format!("spec.type, spec.metadata.redisHost; {apply}")).await;
    component(yaml.path(), "locks", "state.redis", "[]");
    excludes(
        "component \"locks\" is now of type state.redis; its lock store goes on unchanged until \
         the sidecar is restarted",
    )
    .await;
    let file = yaml.path().join("locks.yaml");
    fs::write(&file, "").unwrap();
    excludes(&format!("component \"locks\" is gone from {}", file.display())).await;
    component(yaml.path(), "locks", "lock.memory", "[{name: ttl, value: 55s}]");
    excludes(&format!("spec.metadata.ttl; {apply}")).await;
    component(yaml.path(), "locks", "lock.memory", "[]");
    excludes("component \"locks\" is again as it was loaded").await;
    // Until the TTL has passed on the real clock, because the process is real.
    while granted.elapsed() < Duration::from_secs(9) {
        assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 409, "it is renewed");
        sleep(Duration::from_millis(100)).await;
    }
    let unlock = json!({ "lockID": held.json()["lockID"] }).to_string();
    assert_eq!(sidecar.call(Method::DELETE, LOCK, unlock).await.status, 204);
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.json()["ttl"], "30s");
}

/// SIGHUP once ended the sidecar without a drain. daprd reads its component
/// YAML again on it.
#[tokio::test]
async fn sighup_makes_it_read_component_yaml_again() {
    let yaml = yaml_of_memory();
    let sidecar = Binary::start(yaml.path(), &[]).await;
    sidecar.signal(Signal::HUP);
    let give_up = Instant::now() + PATIENCE;
    while !sidecar.log().contains("SIGHUP: reading component YAML again") {
        assert!(Instant::now() < give_up, "{}", sidecar.log());
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 200);
}

/// The flags that the CLI's `getArgs` makes for `dapr run` without options.
/// `--app-max-concurrency -1` was once refused.
#[tokio::test]
async fn it_starts_with_the_flags_that_the_cli_passes() {
    let yaml = yaml_of_memory();
    let metrics = free_port();
    let flags = format!(
        "--app-port 0 --profile-port -1 --metrics-port {metrics} \
        --dapr-internal-grpc-port 37004 --config /nowhere/config.yaml --app-protocol http \
        --log-level info --app-max-concurrency -1 --placement-host-address localhost:50005 \
        --max-body-size 4Mi --read-buffer-size 4Ki"
    );
    let mut flags: Vec<_> = flags.split_whitespace().collect();
    // --scheduler-host-address, as the CLI 1.18 leaves it after its check of the
    // version.
    flags.extend(["", "localhost:50006"]);
    let sidecar = Binary::start(yaml.path(), &flags).await;
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 200);
}

#[test]
fn broken_component_yaml_is_a_wrong_configuration() {
    let yaml = yaml_of_memory();
    fs::write(yaml.path().join("broken.yaml"), "kind: [").unwrap();
    let path = yaml.path().to_str().unwrap();
    let mut leasehold = Leasehold::spawn(&["sidecar", "--resources-path", path]);
    assert_eq!(leasehold.exited().code(), Some(64));
    assert!(leasehold.log().contains("broken.yaml"), "{}", leasehold.log());
}

#[tokio::test]
async fn the_default_max_hold_of_the_command_line_ends_a_lock() {
    let yaml = yaml_of_memory();
    let sidecar = Binary::start(yaml.path(), &["--max-hold-default", "2s"]).await;
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 200);
    until(&sidecar, |answer| answer.status == 200).await;
    logged(&sidecar, "cause=max_hold").await;
}

#[tokio::test]
async fn a_requested_max_hold_is_no_loss_in_the_log_and_a_drain_counts_what_is_left() {
    let yaml = yaml_of_memory();
    let sidecar = Binary::start(yaml.path(), &[]).await;
    let limited = r#"{"immediate":true,"maxHold":"100ms"}"#;
    assert_eq!(sidecar.post(LOCK, limited).await.status, 200);
    logged(&sidecar, "a held lock is released after its max_hold").await;
    assert!(!sidecar.log().contains("a held lock is lost"), "{}", sidecar.log());
    until(&sidecar, |answer| answer.status == 200).await;
    assert_eq!(sidecar.post(LOCK, IMMEDIATE).await.status, 200);
    sidecar.signal(Signal::TERM);
    logged(&sidecar, "locks without a stream are left to their TTL locks=1").await;
}

#[tokio::test]
async fn a_drain_during_an_outage_counts_what_is_not_settled() {
    let (server, yaml) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let metadata = format!(
        "[{{name: redisHost, value: '{}'}}, {{name: operationTimeout, value: 1s}}]",
        server.address()
    );
    component(yaml.path(), "locks", "lock.redis", &metadata);
    let sidecar = Binary::start(yaml.path(), &["--dapr-graceful-shutdown-seconds", "1"]).await;
    server.process.suspend().unwrap();
    let unknown = sidecar.post(LOCK, IMMEDIATE).await;
    assert_eq!(unknown.status, 500, "{}", unknown.json());
    sidecar.signal(Signal::TERM);
    let line = "what they left ends with its TTL store=locks operations=1";
    logged(&sidecar, line).await;
}

async fn logged(sidecar: &Binary, what: &str) {
    let give_up = Instant::now() + PATIENCE;
    while !sidecar.log().contains(what) {
        assert!(Instant::now() < give_up, "{what} is not in\n{}", sidecar.log());
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_component_that_is_added_while_its_backend_is_down_is_tried_again() {
    let sockets = tempfile::tempdir().unwrap();
    let folder = sockets.path().to_str().unwrap();
    let ignored = "[]\n  ignoreErrors: true";
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "ignored", "lock.other", ignored);
    let sidecar = Binary::start(yaml.path(), &["--socket-folder", folder]).await;
    component(yaml.path(), "locks", "lock.other", "[]");
    logged(&sidecar, "the component is not loaded yet").await;
    let other =
        Leasehold::spawn(&["serve", "--store", "memory=other", "--socket-folder", folder]);
    until(&sidecar, |answer| answer.status == 200).await;
    logged(&sidecar, "lock store loaded store=\"ignored\"").await;
    drop(other);
}

/// `--log-level debug` is documented to log calls, but once did not, and it did not
/// show who had ended a lock by force.
#[tokio::test]
async fn calls_and_forced_unlocks_are_logged() {
    let yaml = yaml_of_memory();
    let sidecar = Binary::start(yaml.path(), &["--log-level", "debug"]).await;
    let held = sidecar.post(LOCK, IMMEDIATE).await;
    let forced = sidecar.call(Method::DELETE, LOCK, r#"{"force":true,"reason":"stuck"}"#).await;
    assert_eq!((held.status.as_u16(), forced.status.as_u16()), (200, 204));
    logged(
        &sidecar,
        "unlocked by force app_id=\"app\" store=\"locks\" resource=\"lock||app||r\"",
    )
    .await;
    logged(&sidecar, "answered method=DELETE path=\"/v1.0-alpha2/lock/locks/r\" status=204")
        .await;
    assert!(!sidecar.log().contains(held.json()["lockID"].as_str().unwrap()));
    let held = sidecar.post(LOCK, IMMEDIATE).await.json();
    let scope = "/v1.0-alpha2/locks/locks?all=true&reason=tidy";
    assert_eq!(sidecar.call(Method::DELETE, scope, "").await.status, 200);
    let grant = format!("grant_id={} reason=\"tidy\"", held["grantID"]);
    logged(&sidecar, &grant).await;
}
