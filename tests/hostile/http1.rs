//! Bad HTTP/1, on the sidecar's HTTP port.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use crate::{
    attacked::Attacked,
    frames::send,
    target::{Interface, PATIENCE, Wire, until_closed},
};

const LOCK: &str = "POST /v1.0-alpha2/lock/mem/attacked HTTP/1.1\r\nHost: localhost\r\n";
/// How long a client may at least be idle.
const IDLE: Duration = Duration::from_secs(12);

/// Sends a byte at a time until the other side closes the connection. Returns what it sent.
async fn drip(wire: &mut (dyn Wire + '_), byte: u8) -> Vec<u8> {
    let give_up = Instant::now() + PATIENCE;
    let (mut said, mut part) = (Vec::new(), [0; 1024]);
    while Instant::now() < give_up {
        if wire.write_all(&[byte]).await.is_err() {
            return said;
        }
        match timeout(Duration::from_millis(100), wire.read(&mut part)).await {
            Ok(Ok(0) | Err(_)) => return said,
            Ok(Ok(count)) => said.extend_from_slice(&part[..count]),
            Err(_) => {}
        }
    }
    panic!("it is patient without end; it said {:?}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn headers_sent_a_byte_at_a_time_are_not_waited_for() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut wire = attacked.connect().await;
        slow.push(tokio::spawn(async move {
            wire.write_all(format!("{LOCK}X-Slow: ").as_bytes()).await.unwrap();
            drip(&mut *wire, b'a').await
        }));
    }
    attacked.steady_client.is_served(50).await;
    for slow in slow {
        slow.await.unwrap();
    }
    attacked.end().await;
}

/// Clients keep connections for their next call.
#[tokio::test]
async fn a_connection_may_be_idle_between_requests() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut wire = attacked.connect().await;
    for _ in 0..2 {
        wire.write_all(b"GET /v1.0/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut part = [0; 1024];
        let count = timeout(PATIENCE, wire.read(&mut part)).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&part[..count]);
        assert!(said.starts_with("HTTP/1.1 204"), "{said:?}");
        sleep(IDLE).await;
    }
    drop(wire);
    attacked.end().await;
}

#[tokio::test]
async fn headers_that_stop_after_an_answered_request_are_not_waited_for() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut wire = attacked.connect().await;
    wire.write_all(b"GET /v1.0/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(wire.read(&mut [0; 1024]).await.unwrap() > 0);
    wire.write_all(LOCK.as_bytes()).await.unwrap();
    until_closed(&mut *wire).await;
    attacked.end().await;
}

#[tokio::test]
async fn a_body_sent_a_byte_at_a_time_is_refused() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut wire = attacked.connect().await;
    wire.write_all(format!("{LOCK}Content-Length: 60000\r\n\r\n").as_bytes()).await.unwrap();
    let said = drip(&mut *wire, b' ').await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("\"body\""), "{said}");
    drop(wire);
    attacked.end().await;
}

#[tokio::test]
async fn headers_without_end_are_refused() {
    let attacked = Attacked::start(Interface::Http).await;
    for line in ["X-Many: many\r\n".to_owned(), format!("X-Long: {}", "l".repeat(8_000))] {
        let mut wire = attacked.connect().await;
        wire.write_all(LOCK.as_bytes()).await.unwrap();
        let mut sent = 0;
        while sent < 16 * 1024 * 1024 && send(&mut *wire, line.as_bytes()).await {
            sent += line.len();
        }
        assert!(sent < 16 * 1024 * 1024, "it takes headers of {sent} bytes");
        until_closed(&mut *wire).await;
    }
    attacked.end().await;
}

#[tokio::test]
async fn a_body_larger_than_any_is_refused_before_it_is_read() {
    let attacked = Attacked::start(Interface::Http).await;
    for framing in
        ["Content-Length: 1000000000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"]
    {
        let mut wire = attacked.connect().await;
        wire.write_all(format!("{LOCK}{framing}").as_bytes()).await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 64 * 1024 * 1024 && send(&mut *wire, &chunk).await {
            sent += chunk.len();
        }
        assert!(sent < 64 * 1024 * 1024, "it takes a body of {sent} bytes");
    }
    // With a body that the client need not finish, the answer can be read.
    let mut wire = attacked.connect().await;
    let request = format!("{LOCK}Content-Length: 70000\r\n\r\n{}", " ".repeat(70_000));
    send(&mut *wire, request.as_bytes()).await;
    let said = until_closed_or_idle(&mut *wire).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("larger than 65536"), "{said}");
    drop(wire);
    attacked.end().await;
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut wire = attacked.connect().await;
    wire.write_all(b"GET /v1.0/metadata HTTP/1.0\r\n\r\n").await.unwrap();
    let said = until_closed(&mut *wire).await;
    assert!(said.starts_with(b"HTTP/1.0 200"), "{}", String::from_utf8_lossy(&said));
    drop(wire);
    attacked.end().await;
}

#[tokio::test]
async fn a_hundred_pipelined_requests_have_a_hundred_answers() {
    let attacked = Attacked::start(Interface::Http).await;
    let mut wire = attacked.connect().await;
    let one = "GET /v1.0/healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET /v1.0/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    wire.write_all(format!("{}{last}", one.repeat(99)).as_bytes()).await.unwrap();
    let said = until_closed(&mut *wire).await;
    assert_eq!(String::from_utf8_lossy(&said).matches("HTTP/1.1 204").count(), 100);
    drop(wire);
    attacked.end().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_not_heaped_up() {
    let attacked = Attacked::start(Interface::Http).await;
    let requests = "GET /v1.0/metadata HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut wire = attacked.connect().await;
        // Until it accepts no more bytes.
        let writing = async { while send(&mut *wire, requests.as_bytes()).await {} };
        let taken = timeout(Duration::from_millis(300), writing).await;
        assert!(taken.is_err(), "the connection has ended");
        unread.push(wire);
    }
    attacked.steady_client.is_served(5).await;
    drop(unread);
    attacked.end().await;
}

#[tokio::test]
async fn two_lengths_are_no_request() {
    let attacked = Attacked::start(Interface::Http).await;
    for framing in [
        "Content-Length: 5\r\nContent-Length: 50\r\n\r\n",
        "Content-Length: -1\r\n\r\n",
        "Content-Length: 99999999999999999999999\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        " folded: x\r\n\r\n",
    ] {
        let mut wire = attacked.connect().await;
        wire.write_all(format!("{LOCK}{framing}").as_bytes()).await.unwrap();
        let said = until_closed_or_idle(&mut *wire).await;
        assert!(!said.starts_with("HTTP/1.1 2"), "{framing:?}: {said}");
    }
    attacked.end().await;
}

/// What is received until the connection ends or is idle.
async fn until_closed_or_idle(wire: &mut (dyn Wire + '_)) -> String {
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let first = timeout(PATIENCE, wire.read(&mut part)).await.expect("no answer");
    let mut count = first.unwrap_or(0);
    while count > 0 {
        said.extend_from_slice(&part[..count]);
        let more = timeout(Duration::from_millis(200), wire.read(&mut part)).await;
        count = more.map_or(0, |read| read.unwrap_or(0));
    }
    String::from_utf8_lossy(&said).into_owned()
}
