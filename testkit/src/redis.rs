//! A Redis server.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{ports::free_port, process::Process};

/// How often it is started again on another port if it ends at once.
const STARTS_MAX: usize = 20;
const READY_WITHIN: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How a server is started. By default it has a temporary folder, and no log.
#[derive(Clone, Debug, Default)]
pub struct RedisSetup {
    /// Further arguments.
    pub arguments: Vec<OsString>,
    /// Environment variables.
    pub variables: Vec<(OsString, OsString)>,
    /// The folder of its data.
    pub data: Option<PathBuf>,
    /// The file of its log.
    pub log: Option<PathBuf>,
}

/// A server on a free loopback port, without persistence unless its arguments ask for
/// it; killed when dropped.
#[derive(Debug)]
pub struct RedisServer {
    /// Its process.
    pub process: Process,
    port: u16,
    _folder: Option<TempDir>,
}

impl RedisServer {
    /// Starts one and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self::launch(&RedisSetup { arguments, ..RedisSetup::default() }).unwrap()
    }

    /// Starts one and waits until it answers. Blocks the thread.
    pub fn launch(setup: &RedisSetup) -> anyhow::Result<Self> {
        let folder = if setup.data.is_none() { Some(tempfile::tempdir()?) } else { None };
        let temporary = folder.as_ref().map(TempDir::path);
        let data = setup.data.as_deref().or(temporary).context("no folder")?;
        for _ in 0..STARTS_MAX {
            let port = free_port();
            let mut process = process(setup, data, port);
            if comes_up(&mut process, port)? {
                return Ok(Self { process, port, _folder: folder });
            }
        }
        bail!("redis-server ended {STARTS_MAX} times when it was started")
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `redis://host:port`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server: its data are lost, unless it persists them.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts a killed server again on the same port.
    pub fn restart(&mut self) {
        let give_up = Instant::now() + READY_WITHIN;
        // The port may not be free at once.
        while !comes_up(&mut self.process, self.port).unwrap() {
            assert!(Instant::now() < give_up, "redis-server did not come back");
        }
    }

    /// A plain connection, to inspect and change its data.
    pub fn connect(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }
}

/// Whether tests run on servers without functions, where leasehold runs its library as a script:
/// if `LEASEHOLD_TEST_WITHOUT_FUNCTIONS` is set.
pub fn without_functions() -> bool {
    std::env::var_os("LEASEHOLD_TEST_WITHOUT_FUNCTIONS").is_some()
}

fn process(setup: &RedisSetup, data: &Path, port: u16) -> Process {
    let mut process = Process::new("redis-server")
        .arguments(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .arguments([Path::new("--dir"), data])
        .arguments(&setup.arguments);
    if without_functions() {
        process = process.arguments(["--rename-command", "FUNCTION", ""]);
    }
    for (name, value) in &setup.variables {
        process = process.variable(name, value);
    }
    match &setup.log {
        Some(file) => process.log_to(file),
        None => process,
    }
}

/// Starts a server and waits until it answers; `false` if it has ended instead, most
/// likely because its port was taken meanwhile.
pub(crate) fn comes_up(process: &mut Process, port: u16) -> anyhow::Result<bool> {
    process.start()?;
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let give_up = Instant::now() + READY_WITHIN;
    while Instant::now() < give_up {
        if !process.runs() {
            return Ok(false);
        }
        if answers(&client) {
            return Ok(true);
        }
        sleep(POLL_INTERVAL);
    }
    bail!("redis-server does not answer on port {port}")
}

/// Whether it answers in any way: a server with a password refuses, but is ready.
fn answers(client: &redis::Client) -> bool {
    let ping = |mut connection| redis::cmd("PING").query::<String>(&mut connection);
    match client.get_connection_with_timeout(READY_WITHIN).and_then(ping) {
        Ok(_) => true,
        Err(error) => !error.is_io_error() && error.code() != Some("LOADING"),
    }
}
