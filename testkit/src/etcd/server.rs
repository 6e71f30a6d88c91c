//! One member.

use std::{net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{bail, ensure};
use etcd_client::{Client, ConnectOptions, TlsOptions};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{STARTS_MAX, Tls, Version};
use crate::{ports::free_address, process::Process, wait::eventually};

/// How long a server may take to answer.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// The configuration of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Its name.
    pub name: String,
    /// Where it serves clients.
    pub client: SocketAddr,
    /// Where it serves its peers.
    pub peer: SocketAddr,
    /// Where its peers find it: `peer`, or a proxy before that.
    pub known_at: SocketAddr,
    /// All members, in the format of `--initial-cluster`.
    pub cluster: String,
}

impl MemberConfig {
    /// The members of a new cluster, on free ports.
    pub fn cluster(size: usize) -> Vec<Self> {
        let addresses = (0..size).map(|_| {
            let peer = free_address();
            (free_address(), peer, peer)
        });
        Self::cluster_at(addresses.collect())
    }

    /// The members of a new cluster at these addresses: for clients, for peers, and
    /// where the peers find it.
    pub fn cluster_at(addresses: Vec<(SocketAddr, SocketAddr, SocketAddr)>) -> Vec<Self> {
        let all = addresses.iter().enumerate();
        let all: Vec<String> =
            all.map(|(n, (_, _, known_at))| format!("m{n}=http://{known_at}")).collect();
        let cluster = all.join(",");
        let member = |(n, (client, peer, known_at))| Self {
            name: format!("m{n}"),
            client,
            peer,
            known_at,
            cluster: cluster.clone(),
        };
        addresses.into_iter().enumerate().map(member).collect()
    }

    /// Its arguments, with its data in `data`.
    pub fn arguments(&self, data: &Path, client_scheme: &str) -> Vec<String> {
        let client = format!("{client_scheme}://{}", self.client);
        let peer = format!("http://{}", self.peer);
        let mut arguments = self.restore_arguments(data);
        let more = [
            ("--listen-client-urls", client.as_str()),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--log-level", "error"),
        ];
        arguments
            .extend(more.iter().flat_map(|(name, value)| [*name, *value]).map(str::to_owned));
        arguments
    }

    /// The arguments of `snapshot restore` for this member.
    pub fn restore_arguments(&self, data: &Path) -> Vec<String> {
        let known_at = format!("http://{}", self.known_at);
        let data = data.display().to_string();
        let arguments = [
            ("--name", self.name.as_str()),
            ("--data-dir", &data),
            ("--initial-advertise-peer-urls", &known_at),
            ("--initial-cluster", &self.cluster),
        ];
        arguments.iter().flat_map(|(name, value)| [*name, *value]).map(str::to_owned).collect()
    }
}

/// One running member, in a temporary folder; killed when dropped.
#[derive(Debug)]
pub struct EtcdServer {
    /// Its client URL.
    pub url: String,
    process: Process,
    folder: TempDir,
    tls: Option<TlsOptions>,
}

impl EtcdServer {
    /// A single member without TLS.
    pub async fn start(version: Version) -> Self {
        Self::start_with(version, &[]).await
    }

    /// Like [`Self::start`], with more arguments.
    pub async fn start_with(version: Version, arguments: &[&str]) -> Self {
        Self::launch(&version.program().unwrap(), arguments).await.unwrap()
    }

    /// Like [`Self::start_with`], with any etcd binary.
    pub async fn launch(program: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        for _ in 0..STARTS_MAX {
            let member = MemberConfig::cluster(1).remove(0);
            let mut server = Self::prepare(program, &member, None, arguments);
            server.process.start()?;
            if server.comes_up().await? {
                return Ok(server);
            }
        }
        bail!("etcd ended {STARTS_MAX} times when it was started")
    }

    /// A member that does not run yet.
    pub(super) fn prepare(
        program: &Path,
        member: &MemberConfig,
        tls: Option<&Tls>,
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut process = Process::new(program)
            .arguments(member.arguments(&folder.path().join("data"), scheme))
            .arguments(arguments);
        if let Some(tls) = tls {
            process = process.arguments(["--client-cert-auth"]);
            for (name, file, pem) in [
                ("--trusted-ca-file", "ca.pem", &tls.ca),
                ("--cert-file", "cert.pem", &tls.cert),
                ("--key-file", "key.pem", &tls.key),
            ] {
                let path = folder.path().join(file);
                std::fs::write(&path, pem).unwrap();
                process = process.arguments([Path::new(name), &path]);
            }
        }
        let url = format!("{scheme}://{}", member.client);
        Self { url, process, folder, tls: tls.map(Tls::options) }
    }

    /// `host:port` for clients.
    pub fn address(&self) -> &str {
        self.url.rsplit("://").next().unwrap()
    }

    /// Its process ID while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Starts it, again with the same data.
    pub fn restart(&mut self) {
        self.kill();
        self.process.start().unwrap();
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Suspends it: its connections stay open, and it answers nothing.
    pub fn pause(&self) {
        self.process.suspend().unwrap();
    }

    /// Resumes it after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.resume().unwrap();
    }

    /// Stops the server and copies its data; it is not started again.
    pub fn back_up(&mut self) {
        self.kill();
        self.copy("data", "backup");
    }

    /// Stops the server and puts the copied data in place of its own; it is not
    /// started again.
    pub fn restore(&mut self) {
        self.kill();
        self.copy("backup", "data");
    }

    fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.folder.path().join(from), self.folder.path().join(to));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([&from, &to]).status().unwrap();
        assert!(copied.success());
    }

    /// The resident memory of the process, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let statm = format!("/proc/{}/statm", self.id().unwrap());
        let statm = std::fs::read_to_string(statm).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
    }

    /// A metric that it shows at `/metrics`, summed over its labels.
    pub async fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.address()).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        let values: Vec<f64> = page
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '))
            .filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'))
            .map(|(_, value)| value.trim().parse().unwrap())
            .collect();
        assert!(!values.is_empty(), "etcd has no metric {name}");
        values.iter().sum()
    }

    /// Waits until it answers; `false` if it has ended instead, most likely because
    /// its port was taken meanwhile.
    pub(super) async fn comes_up(&mut self) -> anyhow::Result<bool> {
        let give_up = Instant::now() + READY_WITHIN;
        while self.process.runs() {
            if self.client().await.get("ready", None).await.is_ok() {
                return Ok(true);
            }
            ensure!(Instant::now() < give_up, "etcd does not answer at {}", self.url);
            sleep(POLL_INTERVAL).await;
        }
        Ok(false)
    }

    /// Waits until it answers.
    pub async fn ready(&self) {
        let answers = async || Ok(self.client().await.get("ready", None).await?);
        eventually(READY_WITHIN, "etcd answers", answers).await.unwrap();
    }

    /// A client of its own. Its requests may take 5 s, because a busy machine needs more
    /// than 2 s to hash a password.
    pub async fn client(&self) -> Client {
        let mut options = ConnectOptions::new().with_timeout(Duration::from_secs(5));
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.clone());
        }
        Client::connect([&self.url], Some(options)).await.unwrap()
    }

    /// The current revision.
    pub async fn revision(&self) -> i64 {
        self.client().await.get("x", None).await.unwrap().header().unwrap().revision()
    }

    /// How many leases live.
    pub async fn leases(&self) -> usize {
        self.client().await.leases().await.unwrap().leases().len()
    }

    /// The raft index: every raft entry raises it by one.
    pub async fn raft_index(&self) -> u64 {
        self.client().await.status().await.unwrap().raft_index()
    }
}
