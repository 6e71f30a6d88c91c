//! Connections that say nothing, little, or nonsense, and too many of them.

use std::{process::Command, time::Duration};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use crate::{
    attacked::Attacked,
    frames::{PREFACE, opening, send},
    target::{Interface, PATIENCE, until_closed},
};

const INTERFACES: [Interface; 3] = [Interface::Component, Interface::Grpc, Interface::Http];
const FLOOD: usize = 300;

/// What is not yet a connection has a place, and must not keep it.
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

/// Keep-alive pings find out who does not even answer.
#[tokio::test]
async fn who_is_connected_and_answers_no_ping_is_put_out() {
    for interface in INTERFACES {
        let attacked = Attacked::start(interface).await;
        let mut wire = attacked.connect().await;
        assert!(send(&mut *wire, &opening(&[])).await);
        let give_up = Instant::now() + 2 * PATIENCE;
        while attacked.attackers() > 0 {
            assert!(Instant::now() < give_up, "{interface:?}: still there");
            sleep(Duration::from_millis(50)).await;
        }
        attacked.end().await;
    }
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
                // Ends what HTTP/1 takes for headers.
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

/// Raises what this process, and what it starts from now on, may open.
fn allow_descriptors(count: usize) {
    let arguments = [format!("--pid={}", std::process::id()), format!("--nofile={count}:")];
    let raised = Command::new("prlimit").args(arguments).status();
    assert!(raised.is_ok_and(|status| status.success()), "ulimit -Hn is below {count}");
}

/// Left waiting, a caller would never know why.
#[tokio::test]
async fn a_connection_too_many_is_closed_and_the_others_stay() {
    const LIMIT: usize = 4096;
    allow_descriptors(2 * LIMIT);
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
