//! Sentinels and servers that ask for TLS.

use std::path::Path;

use leasehold_testkit::{etcd::Tls, ports::free_port};

use super::{errors::unavailable, *};

const INSECURE: [(&str, &str); 2] = [("enableTLS", "true"), ("insecureSkipTLSVerify", "true")];

/// A certificate in files, and how `redis-server` is told of it.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let (folder, tls) = (tempfile::tempdir().unwrap(), Tls::generate());
        for (name, text) in [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| Path::join(self.folder.path(), name).display().to_string();
        vec![
            ("tls-cert-file", path("cert")),
            ("tls-key-file", path("key")),
            ("tls-ca-cert-file", path("ca")),
            ("tls-auth-clients", "no".into()),
            ("tls-replication", "yes".into()),
        ]
    }

    /// A server with this port for TLS beside its plain one.
    fn server(&self, port: u16) -> RedisServer {
        let mut arguments = vec!["--tls-port".to_owned(), port.to_string()];
        for (name, value) in self.options() {
            arguments.extend([format!("--{name}"), value]);
        }
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        RedisServer::start_with(&arguments)
    }

    /// A Sentinel with this port for TLS beside its plain one.
    fn sentinel(&self, master: u16, port: u16) -> Sentinels {
        let mut lines = vec![format!("tls-port {port}")];
        lines.extend(self.options().iter().map(|(name, value)| format!("{name} {value}")));
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        Sentinels::start(&format!("127.0.0.1:{master}"), 1, &lines)
    }
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn tls_is_for_sentinels_and_for_the_master_that_they_name() {
    let files = Files::new();
    let (master, port) = (free_port(), free_port());
    let server = files.server(master);
    let _sentinels = files.sentinel(master, port);
    let store = watched(&format!("127.0.0.1:{port}"), &INSECURE).await.unwrap();
    take(&store, "r", MINUTE).await;
    assert_eq!(ask::<i64>(&mut server.connect(), &["EXISTS", "r"]), 1);
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn tls_that_only_one_side_uses_is_named() {
    let files = Files::new();
    let (master, port) = (free_port(), free_port());
    let server = files.server(master);
    let sentinels = files.sentinel(master, port);
    let encrypted = format!("127.0.0.1:{port}");
    for (list, more) in [(&sentinels.list(), &INSECURE[..]), (&encrypted, &[])] {
        let why = unavailable(watched(list, more).await);
        assert!(why.contains("enableTLS") && why.contains(list), "{why}");
    }
    // The Sentinel speaks TLS, and names the master's plain port.
    let (sentinel, plain) = (free_port(), server.port());
    let _sentinels = files.sentinel(plain, sentinel);
    let why = unavailable(watched(&format!("127.0.0.1:{sentinel}"), &INSECURE).await);
    assert!(why.contains("enableTLS") && why.contains(&server.address()), "{why}");
}
