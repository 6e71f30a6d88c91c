//! Connections that send nothing, little, or nonsense, and too many of them.

use std::{process::Command, time::Duration};

use fastrand::Rng;
use futures_util::future::join_all;
use leasehold_proto::locks::{LockRequest, locks_client::LocksClient};
use leasehold_testkit::{
    leasehold::{Leasehold, program},
    process::Process,
    proxy::Proxy,
    redis::RedisServer,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use tonic::transport::Endpoint;

use crate::{
    attacked::Attacked,
    frames::{PREFACE, opening, send},
    target::{Interface, PATIENCE, until_closed},
};

const INTERFACES: [Interface; 3] = [Interface::Component, Interface::Grpc, Interface::Http];
const FLOOD: usize = 300;

/// A connection without a protocol counts against the limit, and must be closed.
async fn are_closed(interface: Interface, first_bytes: &[u8]) {
    let attacked = Attacked::start(interface).await;
    let mut silent = Vec::new();
    for _ in 0..FLOOD {
        let mut wire = attacked.connect().await;
        wire.write_all(first_bytes).await.unwrap();
        silent.push(wire);
    }
    attacked.steady_client.is_served(10).await;
    let give_up = Instant::now() + PATIENCE;
    while attacked.attackers() > 0 {
        assert!(Instant::now() < give_up, "{} are still there", attacked.attackers());
        sleep(Duration::from_millis(50)).await;
    }
    attacked.end().await;
    drop(silent);
}

#[tokio::test]
async fn the_component_puts_out_who_says_nothing() {
    are_closed(Interface::Component, b"").await;
}

#[tokio::test]
async fn the_grpc_port_puts_out_who_says_nothing() {
    are_closed(Interface::Grpc, b"").await;
}

#[tokio::test]
async fn the_http_port_puts_out_who_says_nothing() {
    are_closed(Interface::Http, b"").await;
}

#[tokio::test]
async fn the_component_puts_out_who_stops_in_the_preface() {
    are_closed(Interface::Component, &PREFACE[..10]).await;
}

#[tokio::test]
async fn the_grpc_port_puts_out_who_stops_in_the_preface() {
    are_closed(Interface::Grpc, &PREFACE[..10]).await;
}

#[tokio::test]
async fn the_http_port_puts_out_who_stops_in_the_preface() {
    are_closed(Interface::Http, &PREFACE[..10]).await;
}

/// Keep-alive pings detect peers that do not answer.
#[tokio::test]
async fn a_connection_without_answers_to_pings_is_closed() {
    let is_put_out = async |interface| {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        assert!(send(&mut *wire, &opening(&[])).await);
        let give_up = Instant::now() + 2 * PATIENCE;
        while attacked.attackers() > 0 {
            assert!(Instant::now() < give_up, "{interface:?}: still there");
            sleep(Duration::from_millis(50)).await;
        }
        attacked.end().await;
    };
    join_all(INTERFACES.map(is_put_out)).await;
}

#[tokio::test]
async fn connections_that_come_and_go_leave_nothing() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        for _ in 0..1_000 {
            drop(attacked.connect().await);
        }
        attacked.end().await;
    }
}

#[tokio::test]
async fn garbage_is_no_request() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let mut random = Rng::with_seed(0x6a72);
        for round in 0..50 {
            let mut garbage: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
            if round % 2 == 0 {
                garbage.splice(0..0, opening(&[]));
            } else {
                // The end of HTTP/1's headers.
                garbage.extend_from_slice(b"\r\n\r\n");
            }
            let mut wire = attacked.connect().await;
            send(&mut *wire, &garbage).await;
            let _ = wire.shutdown().await;
            until_closed(&mut *wire).await;
        }
        attacked.end().await;
    }
}

/// Sets the limit of descriptors of a process and its later children:
/// `SOFT:HARD`, one of which may be omitted.
fn limit_descriptors(pid: u32, limits: &str) {
    let arguments = [format!("--pid={pid}"), format!("--nofile={limits}")];
    let set = Command::new("prlimit").args(arguments).status();
    assert!(set.is_ok_and(|status| status.success()), "ulimit -Hn is below {limits}");
}

#[tokio::test]
async fn idle_clients_leave_a_backend_the_descriptors_to_come_back() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.address()).await;
    let yaml = tempfile::tempdir().unwrap();
    let component = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\n\
         spec: {{type: lock.redis, version: v1, metadata: [{{name: redisHost, value: \"{}\"}}]}}\n",
        proxy.address()
    );
    std::fs::write(yaml.path().join("locks.yaml"), component).unwrap();
    let mut sidecar = Leasehold::sidecar(yaml.path(), &[], &[]);
    let (grpc, _) = sidecar.listening().await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).unwrap();
    let mut client = LocksClient::new(endpoint.connect().await.unwrap());
    let attempt = |resource: &str| LockRequest {
        store_name: "locks".to_owned(),
        resource_id: resource.to_owned(),
        immediate: true,
        ..Default::default()
    };
    client.lock(attempt("before")).await.unwrap();
    limit_descriptors(sidecar.pid(), "200:200");
    let mut idle = Vec::new();
    for _ in 0..250 {
        idle.push(endpoint.connect().await);
    }
    proxy.refuse(true);
    proxy.cut();
    client.lock(attempt("meanwhile")).await.unwrap_err();
    proxy.refuse(false);
    let give_up = Instant::now() + PATIENCE;
    while let Err(status) = client.lock(attempt("after")).await {
        assert!(Instant::now() < give_up, "{status}; log:\n{}", sidecar.log());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    let (program, folder) = (program(), tempfile::tempdir().unwrap());
    let limited = Process::new("prlimit")
        .arguments(["--nofile=100:300"])
        .arguments([&program])
        .arguments(["serve", "--store", "memory", "--socket-folder"])
        .arguments([folder.path()]);
    let serving = Leasehold::launch(limited).unwrap();
    let give_up = Instant::now() + PATIENCE;
    while !folder.path().join("memory.sock").exists() {
        assert!(Instant::now() < give_up, "log:\n{}", serving.log());
        sleep(Duration::from_millis(10)).await;
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("300"), "{files}");
}

/// If it were left waiting, its caller would never learn why.
#[tokio::test]
async fn a_connection_too_many_is_closed_and_the_others_stay() {
    const LIMIT: usize = 4096;
    limit_descriptors(std::process::id(), &format!("{}:", 2 * LIMIT));
    let attacked = Attacked::start(Interface::Component).await;
    let mut all = Vec::new();
    // The steady client has a connection, too.
    for _ in 1..LIMIT {
        let mut wire = attacked.connect().await;
        assert!(send(&mut *wire, &opening(&[])).await);
        all.push(wire);
    }
    let give_up = Instant::now() + PATIENCE;
    while attacked.attackers() < LIMIT - 1 {
        assert!(Instant::now() < give_up, "{} of {LIMIT} are accepted", attacked.attackers());
        sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..10 {
        until_closed(&mut *attacked.connect().await).await;
    }
    attacked.steady_client.is_served(10).await;
    drop(all);
    let give_up = Instant::now() + PATIENCE;
    while attacked.attackers() > 0 {
        assert!(Instant::now() < give_up, "{} are still there", attacked.attackers());
        sleep(Duration::from_millis(20)).await;
    }
    let mut again = attacked.connect().await;
    assert!(send(&mut *again, &opening(&[])).await);
    let mut settings = [0; 9];
    timeout(PATIENCE, again.read_exact(&mut settings)).await.unwrap().unwrap();
    drop(again);
    attacked.end().await;
}
