//! A Redis of a test's own.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::Instant;

/// A redis-server child process on a free loopback port, without persistence;
/// killed on drop.
pub struct RedisServer {
    child: Child,
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        // Somebody may take the free port before the server does.
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(port, &folder, &arguments) {
                return Self { child, folder, port, arguments };
            }
        }
        panic!("redis-server found no free port");
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server: its data are lost.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a killed server again on the same port.
    pub fn restart(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(child) = spawn(self.port, &self.folder, &self.arguments) {
                self.child = child;
                return;
            }
        }
        panic!("redis-server did not come back");
    }

    /// A plain connection for looking and meddling.
    pub fn connect(&self) -> redis::Connection {
        self.client().get_connection().unwrap()
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(format!("redis://127.0.0.1:{}/", self.port)).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody listens on, from below those that the system hands out by itself:
/// else a connection could take it before the server does.
fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000));
    ports
        .take(1_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap()
}

fn spawn(port: u16, folder: &TempDir, arguments: &[String]) -> Option<Child> {
    let mut child = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server must be installed");
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        // An answer of any kind: a server with a password refuses, but is ready.
        match client.get_connection() {
            Ok(mut connection) => {
                let answer: redis::RedisResult<String> =
                    redis::cmd("PING").query(&mut connection);
                match answer {
                    Ok(_) => return Some(child),
                    Err(error) if error.code() == Some("NOAUTH") => return Some(child),
                    Err(_) => {}
                }
            }
            Err(error) if !error.is_io_error() => return Some(child),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
