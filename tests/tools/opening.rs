//! The ways to name a store, and the exit status of each failure.

use std::{fs, io::Read as _, process::Stdio};

use leasehold_lock::{AcquireRequest, Clock, Kind, ResourceId, Store};
use leasehold_testkit::{leasehold::Leasehold, redis::RedisServer};

use crate::stage::{Stage, component, ended, leasehold};

fn list(store: &str, more: &[&str]) -> crate::stage::Ended {
    ended(&mut leasehold(&[&["list", "-o", "name", "--store", store], more].concat()))
}

/// A store of this process on a Redis server.
async fn store(kind: Kind, items: &[(&str, &str)]) -> Store {
    let items = items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    kind.open(items, Clock::system(), None).await.unwrap()
}

async fn lock(store: &Store, name: &str) {
    let granted = store.try_lock(AcquireRequest::new(ResourceId::new(name).unwrap())).await;
    granted.unwrap().receipt.try_accept().unwrap();
}

#[tokio::test]
async fn a_url_names_a_redis_and_an_app_its_own_names() {
    let redis = RedisServer::start();
    let held = store(leasehold_redis::KIND, &[("redisHost", &redis.address())]).await;
    for name in ["lock||shop||order-1", "lock||other||order-2", "raw"] {
        lock(&held, name).await;
    }
    let url = format!("redis://{}", redis.address());
    list(&url, &[]).is(0, "lock||other||order-2\nlock||shop||order-1\nraw\n");
    list(&url, &["--app-id", "shop"]).is(0, "order-1\n");
    list(&format!("{url}?keyPrefix=none"), &["--app-id", "shop", "x"]).is(0, "");
    list(&url, &["--namespace", "a"]).says(64, "--app-id");
    list(&format!("{url}?keyPrefix=name"), &["--app-id", "shop"]).says(64, "needs a component");
}

#[tokio::test]
async fn a_component_is_found_by_its_name() {
    let redis = RedisServer::start();
    let held = store(leasehold_redis::KIND, &[("redisHost", &redis.address())]).await;
    lock(&held, "lock||locks||order-1").await;
    let items = format!(
        "{{name: redisHost, value: '{}'}}, {{name: keyPrefix, value: name}}",
        redis.address()
    );
    let yaml = component("redis", &items);
    let path = yaml.path().to_str().unwrap();
    list("locks", &["--resources-path", path, "--app-id", "any"]).is(0, "order-1\n");
    list("nope", &["--resources-path", path]).says(64, "has the lock stores locks");
}

#[tokio::test]
async fn a_password_comes_from_a_file_or_the_environment() {
    let redis = RedisServer::start_with(&["--requirepass", "hush"]);
    let url = format!("redis://{}", redis.address());
    list(&url, &[]).says(77, "redisPassword is missing");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "hush\n").unwrap();
    let command = || leasehold(&["list", "--store", &url]);
    let by_file = ended(command().env("LEASEHOLD_PASSWORD_FILE", file.path()));
    assert_eq!(by_file.status, 0, "{by_file:?}");
    assert_eq!(ended(command().env("LEASEHOLD_PASSWORD", "hush")).status, 0);
    let wrong = ended(command().env("LEASEHOLD_PASSWORD", "wrong-one"));
    wrong.says(77, "was refused");
    assert!(!wrong.stderr.contains("wrong-one"), "{wrong:?}");
    let both = command();
    let mut both = both;
    both.env("LEASEHOLD_PASSWORD", "hush").env("LEASEHOLD_PASSWORD_FILE", file.path());
    ended(&mut both).says(64, "both set");
    let on_line = format!("redis://:hush@{}", redis.address());
    list(&on_line, &[]).says(64, "LEASEHOLD_PASSWORD_FILE");
}

#[tokio::test]
async fn a_store_that_is_down_is_69() {
    list("redis://127.0.0.1:1", &[]).says(69, "127.0.0.1:1");
    list("etcd://127.0.0.1:1", &[]).says(69, "127.0.0.1:1");
    list("unix:/nowhere.sock", &[]).says(69, "/nowhere.sock");
    let mut of_sidecar = leasehold(&["list", "--store", "dapr:locks"]);
    ended(of_sidecar.env("DAPR_GRPC_PORT", "1")).says(69, "DAPR_GRPC_PORT");
    ended(of_sidecar.env("DAPR_GRPC_PORT", "http")).says(64, "is no port");
}

#[tokio::test]
async fn an_instance_that_nobody_initialised_is_69() {
    let serving = Leasehold::serve("memory", &[]);
    serving.ready("memory");
    let url = format!("unix:{}?instance=other", serving.socket("memory").display());
    list(&url, &[]).says(69, "\"other\" is not initialised");
}

#[tokio::test]
async fn a_store_that_cannot_be_named_is_64() {
    list("memory", &[]).says(64, "unix:PATH");
    let yaml = component("memory", "");
    let path = yaml.path().to_str().unwrap();
    list("locks", &["--resources-path", path]).says(64, "unix:PATH");
    list("unix:", &[]).says(64, "no socket");
    list("unix:/x?instance=a&instance=b", &[]).says(64, "twice");
    list("nope://h", &[]).says(64, "redis://");
    list("locks", &[]).says(64, "no lock store");
    list("unix:/x?other=1", &[]).says(64, "instance");
    list("dapr:locks", &["--app-id", "a"]).says(64, "--app-id");
    ended(&mut leasehold(&["list"])).says(64, "--store");
}

#[tokio::test]
async fn a_port_of_another_protocol_is_69() {
    let redis = RedisServer::start();
    let mut of_sidecar = leasehold(&["list", "--store", "dapr:locks"]);
    ended(of_sidecar.env("DAPR_GRPC_PORT", redis.port().to_string()))
        .says(69, "DAPR_GRPC_PORT");
}

#[tokio::test]
async fn a_sidecar_that_asks_for_a_token_gets_it() {
    let redis = RedisServer::start();
    let yaml =
        component("redis", &format!("{{name: redisHost, value: '{}'}}", redis.address()));
    let token = std::path::Path::new("hush");
    let mut sidecar = Leasehold::sidecar(yaml.path(), &[], &[("DAPR_API_TOKEN", token)]);
    let (grpc, _) = sidecar.listening().await.unwrap();
    let mut of_sidecar = leasehold(&["list", "-o", "name", "--store", "dapr:locks"]);
    of_sidecar.env("DAPR_GRPC_PORT", grpc.port().to_string());
    assert_eq!(ended(&mut of_sidecar).status, 77);
    ended(of_sidecar.env("DAPR_API_TOKEN", "hush")).is(0, "");
}

#[tokio::test]
async fn a_sidecar_shows_the_locks_of_its_app() {
    let redis = RedisServer::start();
    let held = store(leasehold_redis::KIND, &[("redisHost", &redis.address())]).await;
    lock(&held, "lock||app||order-1").await;
    lock(&held, "lock||other||order-2").await;
    let yaml =
        component("redis", &format!("{{name: redisHost, value: '{}'}}", redis.address()));
    let mut sidecar = Leasehold::sidecar(yaml.path(), &[], &[]);
    let (grpc, _) = sidecar.listening().await.unwrap();
    let mut command = leasehold(&["list", "-o", "name", "--store", "dapr:locks"]);
    ended(command.env("DAPR_GRPC_PORT", grpc.port().to_string())).is(0, "order-1\n");
    let mut unknown = leasehold(&["list", "--store", "dapr:nope"]);
    ended(unknown.env("DAPR_GRPC_ENDPOINT", grpc.to_string())).says(64, "nope");
}

#[tokio::test]
async fn a_reader_that_closes_the_pipe_ends_the_command_as_a_signal_does() {
    let stage = Stage::start().await;
    for number in 0..2000 {
        stage.lock(&format!("{number:0>100}"), "holder").await;
    }
    let mut command = stage.command(&["list", "-o", "name"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 13), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn completions_manual_pages_and_the_version_are_written() {
    let bash = ended(&mut leasehold(&["completions", "bash"]));
    assert!(bash.stdout.contains("force-unlock"), "{bash:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    ended(&mut leasehold(&["man", path])).is(0, "");
    let page = fs::read_to_string(folder.path().join("leasehold-list.1")).unwrap();
    assert!(page.contains("older"), "{page}");
    ended(&mut leasehold(&["man", "/dev/null/nowhere"])).says(64, "/dev/null/nowhere");
    let version = ended(&mut leasehold(&["version"]));
    version.is(0, &format!("leasehold {}\n", env!("CARGO_PKG_VERSION")));
}
