//! How a front is started.

use std::{fs, path::Path};

use leasehold_testkit::{
    leasehold::{Leasehold, program},
    process::Process,
    redis::RedisServer,
};
use tokio::net::UnixStream;

use crate::{
    binary::{Binary, components, redis_front, refused},
    client::{Client, ok},
    stage::{Backend, Setup, Stage, becomes},
};

/// Asserts that a command line is refused with this text.
fn is_refused(process: Process, expected: &[&str]) {
    let (status, log) = refused(process);
    assert_eq!(status.code(), Some(64), "{log}");
    for expected in expected {
        assert!(log.contains(expected), "{log}");
    }
}

#[test]
fn a_front_that_other_machines_reach_needs_a_password() {
    let yaml = components("memory", &[]);
    let process = redis_front(yaml.path(), &["--listen", "0.0.0.0:0"]);
    is_refused(process, &["--listen: ", "LEASEHOLD_REDIS_FRONT_PASSWORD", "--password-file"]);
}

#[tokio::test]
async fn a_front_that_other_machines_reach_is_served_with_a_password() {
    let yaml = components("memory", &[]);
    let process = redis_front(yaml.path(), &["--listen", "0.0.0.0:0"])
        .variable("LEASEHOLD_REDIS_FRONT_PASSWORD", "secret");
    let front = Binary::of(Leasehold::launch(process).unwrap(), yaml).await;
    let mut client = Client::connect(([127, 0, 0, 1], front.address.port()).into()).await;
    assert!(client.ask(&["PING"]).await.error().starts_with("NOAUTH "));
    assert_eq!(client.ask(&["AUTH", "secret"]).await, ok());
}

#[test]
fn an_empty_password_file_is_refused() {
    let yaml = components("memory", &[]);
    let file = yaml.path().join("password");
    fs::write(&file, "\n").unwrap();
    let process = redis_front(yaml.path(), &["--password-file", file.to_str().unwrap()]);
    is_refused(process, &["--password-file ", "its first line is empty"]);
}

#[test]
fn a_store_that_is_not_there_is_refused_with_those_that_are() {
    let yaml = components("memory", &[]);
    let process = Process::new(program())
        .arguments(["redis-front", "--store", "other"])
        .arguments([Path::new("--resources-path"), yaml.path()]);
    is_refused(process, &["--store: there is no lock store \"other\"", "lockstore"]);
}

#[tokio::test]
async fn a_port_that_is_taken_is_reported_with_its_option() {
    let first = Binary::memory(&[]).await;
    let address = first.address.to_string();
    let (status, log) = refused(redis_front(first.yaml(), &["--listen", &address]));
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains(&address) && log.contains("choose another --listen"), "{log}");
}

#[tokio::test]
async fn a_unix_socket_is_served() {
    let setup = Setup { unix_socket: true, ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut client = Client::over(UnixStream::connect(stage.unix_socket()).await.unwrap());
    assert_eq!(client.take("k", "v").await, ok());
    let holder = stage.look("k").await.lock.grants[0].holder.clone().unwrap();
    assert_eq!(holder.as_str(), format!("redis/pid-{}", std::process::id()));
}

#[tokio::test]
async fn a_front_that_starts_before_its_store_is_there_answers_errors_and_then_serves() {
    let mut server = RedisServer::start();
    server.process.kill();
    let front = Binary::over("redis", &[("redisHost", &server.address())], &[]).await;
    let mut client = front.client().await;
    let reply = client.take("k", "v").await.error();
    assert!(reply.starts_with("ERR leasehold: STORE_UNAVAILABLE: "), "{reply}");
    assert!(client.ask(&["INFO", "server"]).await.text().contains("redis_version"));
    server.restart();
    becomes(&mut client, &["SET", "k", "v", "NX", "PX", "60000"], ok()).await;
}
