//! What Init says of proxies that do not know what leasehold needs.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// What is wrong with `redisHost`.
async fn problem(address: &str, more: &[(&str, &str)]) -> String {
    match try_open(address, more).await.err() {
        Some(LockError::InvalidMetadata(violations)) => {
            assert_eq!(violations[0].field, "redisHost");
            violations[0].problem.clone()
        }
        other => panic!("{other:?}"),
    }
}

fn without(commands: &[&str]) -> RedisServer {
    let arguments = commands.iter().flat_map(|command| ["--rename-command", command, ""]);
    RedisServer::start_with(&arguments.collect::<Vec<_>>())
}

/// Answers a `PING` with this, and ends the connection at any other command.
async fn ends_connections(pong: &'static str) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut sent = [0; 64];
            while let Ok(length @ 1..) = client.read(&mut sent).await {
                if pong.is_empty() || !sent[..length].ends_with(b"PING\r\n") {
                    break;
                }
                client.write_all(pong.as_bytes()).await.unwrap();
            }
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(serving)))
}

/// Envoy answers an unknown command with an error, and knows no `HELLO 3` either.
#[tokio::test]
async fn a_proxy_without_subscribe_is_refused_by_that_name() {
    for unknown in [&["SUBSCRIBE"][..], &["SUBSCRIBE", "HELLO"]] {
        let problem = problem(&without(unknown).address(), &[]).await;
        assert!(problem.contains("does not know SUBSCRIBE"), "{problem}");
    }
}

/// As nutcracker, which answers a `PING` itself.
#[tokio::test]
async fn a_proxy_that_ends_connections_at_subscribe_is_refused_by_that_name() {
    let (address, _proxy) = ends_connections("+PONG\r\n").await;
    let problem = problem(&address, &[]).await;
    assert!(problem.contains("does not know SUBSCRIBE"), "{problem}");
}

/// As haproxy while none of its servers is up.
#[tokio::test]
async fn a_proxy_without_a_server_is_unavailable() {
    let (address, _proxy) = ends_connections("").await;
    let refused = try_open(&address, &[]).await.err();
    assert!(matches!(refused, Some(LockError::StoreUnavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn a_server_without_hello_is_refused_by_that_name_and_the_password_is_not_quoted() {
    let server = without(&["HELLO"]);
    let problem = problem(&server.address(), &[("redisPassword", "a-secret")]).await;
    assert!(problem.contains("HELLO 3") && !problem.contains("a-secret"), "{problem}");
}
