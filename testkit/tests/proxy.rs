//! The proxy's faults of bytes and connections.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{io::ErrorKind, time::Duration};

use leasehold_testkit::{
    proxy::{Admission, Conduct, Flow, Proxy},
    wait::eventually,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

const SOON: Duration = Duration::from_secs(10);
/// Long enough for bytes to arrive over loopback.
const QUIET: Duration = Duration::from_millis(150);

/// An echo server that counts received bytes, and a proxy before it.
struct Echo {
    proxy: Proxy,
    heard: tokio::sync::watch::Receiver<usize>,
    _server: AbortOnDropHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap()).await;
        let (count, heard) = tokio::sync::watch::channel(0);
        let server = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 1024];
                    while let Ok(length @ 1..) = client.read(&mut buffer).await {
                        count.send_modify(|heard| *heard += length);
                        if client.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { proxy, heard, _server: AbortOnDropHandle::new(server) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    /// A connection with one completed echo.
    async fn connected(&self) -> TcpStream {
        let mut client = self.connect().await;
        assert_eq!(said_back(&mut client, b"hello").await, b"hello");
        client
    }

    async fn hears(&mut self, bytes: usize) {
        timeout(SOON, self.heard.wait_for(|heard| *heard >= bytes)).await.unwrap().unwrap();
    }
}

/// Waits until a proxy has read so many bytes.
async fn has_read(bytes: impl Fn() -> u64, count: u64) {
    eventually(SOON, "they are read", async || {
        anyhow::ensure!(bytes() == count, "{}", bytes());
        Ok(())
    })
    .await
    .unwrap();
}

async fn said_back(client: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    client.write_all(bytes).await.unwrap();
    let mut back = vec![0; bytes.len()];
    timeout(SOON, client.read_exact(&mut back)).await.unwrap().unwrap();
    back
}

async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(QUIET, client.read(&mut [0; 16])).await.is_err()
}

async fn has_ended(client: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(SOON, client.read_to_end(&mut rest)).await.is_ok_and(|_| rest.is_empty())
}

#[tokio::test]
async fn a_partition_keeps_back_what_arrives_once_it_is_over() {
    let echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy.set(Conduct::partition());
    client.write_all(b"late").await.unwrap();
    assert!(is_silent(&mut client).await);
    let mut newcomer = echo.connect().await;
    newcomer.write_all(b"new").await.unwrap();
    assert!(is_silent(&mut newcomer).await);
    echo.proxy.heal();
    assert_eq!(said_back(&mut client, b"").await, b"");
    let mut back = [0; 4];
    timeout(SOON, client.read_exact(&mut back)).await.unwrap().unwrap();
    assert_eq!(&back, b"late");
    timeout(SOON, newcomer.read_exact(&mut back[..3])).await.unwrap().unwrap();
    assert_eq!(&back[..3], b"new");
}

#[tokio::test]
async fn a_swallowed_reply_is_lost_though_its_request_was_heard() {
    let echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy.set(Conduct { replies: Flow::Swallow, ..Conduct::default() });
    client.write_all(b"heard").await.unwrap();
    has_read(|| echo.proxy.replied_bytes(), 10).await;
    assert!(is_silent(&mut client).await);
    assert_eq!(*echo.heard.borrow(), 10);
    echo.proxy.heal();
    assert!(has_ended(&mut client).await, "with a hole in it the connection may not go on");
}

#[tokio::test]
async fn a_swallowed_request_is_never_heard() {
    let echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy.set(Conduct { requests: Flow::Swallow, ..Conduct::default() });
    client.write_all(b"lost").await.unwrap();
    has_read(|| echo.proxy.requested_bytes(), 9).await;
    assert!(is_silent(&mut client).await);
    echo.proxy.heal();
    assert!(has_ended(&mut client).await);
    assert_eq!(*echo.heard.borrow(), 5);
}

#[tokio::test]
async fn a_connection_is_cut_after_exactly_so_many_bytes() {
    let mut echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy.set(Conduct { requests: Flow::CutAfter(3), ..Conduct::default() });
    client.write_all(b"abcdef").await.unwrap();
    let mut rest = Vec::new();
    let _ = timeout(SOON, client.read_to_end(&mut rest)).await.unwrap();
    echo.hears(8).await;
    assert_eq!(*echo.heard.borrow(), 8);
}

#[tokio::test]
async fn a_delay_is_as_long_as_it_was_asked_for() {
    let echo = Echo::start().await;
    let mut client = echo.connected().await;
    let by = Duration::from_millis(200);
    echo.proxy.set(Conduct { replies: Flow::Delay(by), ..Conduct::default() });
    let sent = tokio::time::Instant::now();
    assert_eq!(said_back(&mut client, b"slow").await, b"slow");
    assert!(sent.elapsed() >= by);
}

#[tokio::test]
async fn a_refused_connection_ends_and_one_that_is_half_open_is_mute() {
    let echo = Echo::start().await;
    echo.proxy.set(Conduct { admission: Admission::Refuse, ..Conduct::default() });
    assert!(has_ended(&mut echo.connect().await).await);
    echo.proxy.set(Conduct { admission: Admission::HalfOpen, ..Conduct::default() });
    let mut mute = echo.connect().await;
    mute.write_all(b"anybody?").await.unwrap();
    has_read(|| echo.proxy.requested_bytes(), 8).await;
    assert!(is_silent(&mut mute).await);
    assert_eq!(*echo.heard.borrow(), 0);
    echo.proxy.heal();
    let ended = timeout(SOON, mute.read(&mut [0; 16])).await.unwrap();
    assert!(!ended.is_ok_and(|length| length > 0));
}

#[tokio::test]
async fn a_peer_that_vanished_never_says_so_and_others_get_through() {
    let echo = Echo::start().await;
    let mut forsaken = echo.connected().await;
    echo.proxy.vanish();
    forsaken.write_all(b"anybody?").await.unwrap();
    assert!(is_silent(&mut forsaken).await);
    echo.connected().await;
    assert!(is_silent(&mut forsaken).await);
}

#[tokio::test]
async fn a_cut_ends_the_connections_that_there_are_and_no_later_one() {
    let echo = Echo::start().await;
    let mut before = echo.connected().await;
    echo.proxy.cut();
    assert!(has_ended(&mut before).await);
    echo.connected().await;
}

async fn was_reset(stream: &mut TcpStream) -> bool {
    let read = timeout(SOON, stream.read(&mut [0; 16])).await.expect("it ends");
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Both ends of a connection through a proxy that passes resets on.
async fn through_a_proxy_that_passes_resets() -> (Proxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start_passing_resets(listener.local_addr().unwrap()).await;
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = timeout(SOON, listener.accept()).await.expect("it connects").unwrap();
    eventually(SOON, "it is counted", async || {
        anyhow::ensure!(proxy.connections() == 1);
        Ok(())
    })
    .await
    .unwrap();
    (proxy, client, server)
}

#[tokio::test]
async fn a_reset_reaches_both_sides() {
    let (proxy, mut client, mut server) = through_a_proxy_that_passes_resets().await;
    proxy.reset();
    assert!(was_reset(&mut client).await && was_reset(&mut server).await);
}

#[tokio::test]
async fn a_reset_of_the_client_is_passed_on_and_a_close_stays_a_close() {
    let (_proxy, client, mut server) = through_a_proxy_that_passes_resets().await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert!(was_reset(&mut server).await);
    let (_proxy, client, mut server) = through_a_proxy_that_passes_resets().await;
    drop(client);
    assert!(!was_reset(&mut server).await);
}

#[tokio::test]
async fn a_reply_that_is_to_be_lost_ends_its_connection_and_no_other() {
    let mut echo = Echo::start().await;
    let (mut one, mut other) = (echo.connected().await, echo.connected().await);
    echo.proxy.lose_reply_to("take");
    assert_eq!(said_back(&mut other, b"ping").await, b"ping");
    one.write_all(b"take").await.unwrap();
    assert!(has_ended(&mut one).await);
    echo.hears(18).await;
    assert_eq!(said_back(&mut other, b"take").await, b"take");
}

#[tokio::test]
async fn a_request_that_is_held_arrives_after_its_client_was_cut_off() {
    let echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy.hold_request("take");
    client.write_all(b"take").await.unwrap();
    assert!(has_ended(&mut client).await);
    assert_eq!(*echo.heard.borrow(), 5);
    timeout(SOON, echo.proxy.deliver()).await.unwrap();
    assert_eq!(*echo.heard.borrow(), 9);
}

#[tokio::test]
async fn connections_end_with_the_proxy() {
    let mut echo = Echo::start().await;
    let mut client = echo.connected().await;
    echo.proxy = Proxy::start(echo.proxy.address()).await;
    assert!(has_ended(&mut client).await);
}

#[tokio::test]
async fn a_proxy_that_leads_elsewhere_leaves_its_connections_where_they_are() {
    let echo = Echo::start().await;
    let mut before = echo.connected().await;
    assert_eq!(echo.proxy.connections(), 1);
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    echo.proxy.lead_to(elsewhere.local_addr().unwrap());
    let _newcomer = echo.connect().await;
    let _there = timeout(SOON, elsewhere.accept()).await.unwrap().unwrap();
    assert_eq!(said_back(&mut before, b"still here").await, b"still here");
    eventually(SOON, "both are counted", async || {
        anyhow::ensure!(echo.proxy.connections() == 2);
        Ok(())
    })
    .await
    .unwrap();
}
