//! Sentinels and servers that ask for TLS.

use leasehold_testkit::ports::free_port;

use super::{errors::unavailable, *};
use crate::tls::{Files, INSECURE};

fn server_of(files: &Files, port: u16) -> RedisServer {
    let arguments = files.arguments(port);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    RedisServer::start_with(&arguments)
}

fn sentinel_of(files: &Files, master: u16, port: u16) -> Sentinels {
    let options = files.options(port);
    let lines: Vec<_> = options.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    Sentinels::start(&format!("127.0.0.1:{master}"), 1, &lines)
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn tls_is_for_sentinels_and_for_the_master_that_they_name() {
    let files = Files::new();
    let (master, port) = (free_port(), free_port());
    let server = server_of(&files, master);
    let _sentinels = sentinel_of(&files, master, port);
    let store = watched(&format!("127.0.0.1:{port}"), &INSECURE).await.unwrap();
    take(&store, "r", MINUTE).await;
    assert_eq!(ask::<i64>(&mut server.connect(), &["EXISTS", "r"]), 1);
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn tls_that_only_one_side_uses_is_named() {
    let files = Files::new();
    let (master, port) = (free_port(), free_port());
    let server = server_of(&files, master);
    let sentinels = sentinel_of(&files, master, port);
    let encrypted = format!("127.0.0.1:{port}");
    for (list, more) in [(&sentinels.list(), &INSECURE[..]), (&encrypted, &[])] {
        let why = unavailable(watched(list, more).await);
        assert!(why.contains("enableTLS") && why.contains(list), "{why}");
    }
    // The Sentinel speaks TLS, and names the master's plain port.
    let (sentinel, plain) = (free_port(), server.port());
    let _sentinels = sentinel_of(&files, plain, sentinel);
    let why = unavailable(watched(&format!("127.0.0.1:{sentinel}"), &INSECURE).await);
    assert!(why.contains("enableTLS") && why.contains(&server.address()), "{why}");
}
