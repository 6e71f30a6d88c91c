//! A master and its replicas, and the Sentinels that watch them.

use std::{fs::write, thread::sleep, time::Duration};

use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    ports::free_port,
    process::Process,
    redis::{RedisServer, comes_up},
};

/// What the Sentinels call the master.
pub const MASTER_NAME: &str = "main";
const READY_WITHIN: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How often a Sentinel is started again on another port if it ends at once.
const STARTS_MAX: usize = 20;

/// Starts a replica of the server at this address, `host:port`, with further arguments.
pub fn replica_of(master: &str, arguments: &[&str]) -> RedisServer {
    let (host, port) = master.rsplit_once(':').unwrap();
    let mut all = vec!["--replicaof", host, port];
    all.extend(AT_ONCE);
    all.extend(arguments);
    RedisServer::start_with(&all)
}

/// Starts a server that can have replicas, with further arguments.
pub fn master(arguments: &[&str]) -> RedisServer {
    RedisServer::start_with(&[&AT_ONCE, arguments].concat())
}

/// A master waits for further replicas before it sends its data, 5 s by default.
const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

/// Sentinels that watch one master.
#[derive(Debug)]
pub struct Sentinels {
    /// One or more.
    pub all: Vec<Sentinel>,
}

/// One Sentinel, on a free loopback port; killed when dropped.
#[derive(Debug)]
pub struct Sentinel {
    /// Its process.
    pub process: Process,
    port: u16,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts `count` Sentinels that watch the master at this address, `host:port`, and waits
    /// until they know each other and `replicas` replicas. `lines` are added to their
    /// configuration.
    pub fn watch(master: &str, count: usize, replicas: usize, lines: &[&str]) -> Self {
        let sentinels = Self::start(master, count, lines);
        sentinels.get_to_know_each_other(replicas);
        sentinels
    }

    /// Starts `count` Sentinels that watch the master at this address, `host:port`.
    pub fn start(master: &str, count: usize, lines: &[&str]) -> Self {
        Self { all: (0..count).map(|_| Sentinel::start(master, count, lines)).collect() }
    }

    /// Their addresses, as `redisHost` lists them.
    pub fn list(&self) -> String {
        let addresses: Vec<_> = self.all.iter().map(Sentinel::address).collect();
        addresses.join(",")
    }

    /// The port of the master, as the first Sentinel sees it.
    pub fn master_port(&self) -> u16 {
        self.all[0].master_port()
    }

    /// Orders a failover, and returns when a Sentinel names the new master's port.
    pub fn fail_over(&self) -> u16 {
        let before = self.master_port();
        let mut connection = self.all[0].connect();
        let mut order = redis::cmd("SENTINEL");
        order.arg("FAILOVER").arg(MASTER_NAME);
        // A replica may just have connected again, and does not count then.
        wait_until("the failover begins", || order.exec(&mut connection).is_ok());
        self.failed_over(before)
    }

    /// Returns the port of the new master once a Sentinel names another than this.
    pub fn failed_over(&self, before: u16) -> u16 {
        let mut port = before;
        wait_until("another master is named", || {
            port = self.master_port();
            port != before
        });
        port
    }

    fn get_to_know_each_other(&self, replicas: usize) {
        self.set_publish_period(100);
        for sentinel in &self.all {
            wait_until("the Sentinels know each other and all servers", || {
                let master = sentinel.described();
                let is = |field: &str, count: usize| {
                    master.get(field).is_some_and(|value| *value == count.to_string())
                };
                let others = self.all.len() - 1;
                is("num-slaves", replicas) && is("num-other-sentinels", others)
            });
        }
        self.set_publish_period(2000);
    }

    /// Sets how often Sentinels tell each other about themselves.
    fn set_publish_period(&self, ms: u32) {
        for sentinel in &self.all {
            let mut debug = redis::cmd("SENTINEL");
            debug.arg("DEBUG").arg("publish-period").arg(ms);
            // Before Redis 7.0 it takes a few seconds.
            let _ = debug.exec(&mut sentinel.connect());
        }
    }
}

impl Sentinel {
    fn start(master: &str, count: usize, lines: &[&str]) -> Self {
        let (host, master_port) = master.rsplit_once(':').unwrap();
        let folder = tempfile::tempdir().unwrap();
        // It writes what it learns into this file.
        let file = folder.path().join("sentinel.conf");
        for _ in 0..STARTS_MAX {
            let port = free_port();
            let configuration = format!(
                "port {port}\nbind 127.0.0.1\ndir {folder}\n\
                 sentinel monitor {MASTER_NAME} {host} {master_port} {quorum}\n\
                 sentinel down-after-milliseconds {MASTER_NAME} 500\n\
                 sentinel failover-timeout {MASTER_NAME} 3000\n\
                 sentinel parallel-syncs {MASTER_NAME} 2\n{lines}\n",
                folder = folder.path().display(),
                quorum = count / 2 + 1,
                lines = lines.join("\n"),
            );
            write(&file, configuration).unwrap();
            let mut process = Process::new("redis-server");
            process = process.arguments([file.as_os_str(), "--sentinel".as_ref()]);
            if comes_up(&mut process, port).unwrap() {
                return Self { process, port, _folder: folder };
            }
        }
        panic!("a Sentinel ended {STARTS_MAX} times when it was started")
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A plain connection.
    pub fn connect(&self) -> redis::Connection {
        redis::Client::open(format!("redis://{}", self.address()))
            .unwrap()
            .get_connection()
            .unwrap()
    }

    /// The port of the master, as this Sentinel sees it.
    pub fn master_port(&self) -> u16 {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(MASTER_NAME);
        let (_, port): (String, u16) = question.query(&mut self.connect()).unwrap();
        port
    }

    /// What it knows of the master.
    fn described(&self) -> std::collections::HashMap<String, String> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTER").arg(MASTER_NAME);
        question.query(&mut self.connect()).unwrap()
    }
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + READY_WITHIN;
    while !holds() {
        assert!(Instant::now() < give_up, "never: {what}");
        sleep(POLL_INTERVAL);
    }
}
