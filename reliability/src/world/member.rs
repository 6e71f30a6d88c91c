//! One etcd member.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use etcd_client::{Client, ConnectOptions};

use super::process::{Process, Signal};

/// What all keys of a run begin with.
pub const PREFIX: &str = "/reliability";

/// Where a member is found.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// By clients.
    pub client: SocketAddr,
    /// By the proxy for its peers.
    pub peer: SocketAddr,
    /// By its peers: the proxy.
    pub known_at: SocketAddr,
}

/// A member that can be killed, suspended and started again.
#[derive(Debug)]
pub struct Member {
    /// Its name in the cluster.
    pub name: String,
    /// Its ID in the cluster, in hexadecimal; stays the same over a restore.
    pub id: String,
    /// Where it is found.
    pub place: Place,
    program: PathBuf,
    cluster: String,
    data: PathBuf,
    log: PathBuf,
    /// How large its data may become, if not as large as etcd allows by itself.
    quota_bytes: Option<u64>,
    process: Process,
}

impl Member {
    /// Prepares member `number` of a cluster.
    pub fn new(
        number: usize,
        place: Place,
        all: &[Place],
        program: &Path,
        folder: &Path,
    ) -> Self {
        let name = format!("m{number}");
        let cluster: Vec<String> = all
            .iter()
            .enumerate()
            .map(|(number, place)| format!("m{number}=http://{}", place.known_at))
            .collect();
        let data = folder.join(format!("{name}-data"));
        let log = folder.join(format!("{name}-log"));
        let mut member = Self {
            process: Process::new(program, &log),
            id: String::new(),
            place,
            program: program.to_owned(),
            cluster: cluster.join(","),
            name,
            data,
            log,
            quota_bytes: None,
        };
        member.prepare();
        member
    }

    fn prepare(&mut self) {
        let (client, peer) =
            (format!("http://{}", self.place.client), format!("http://{}", self.place.peer));
        let known_at = format!("http://{}", self.place.known_at);
        self.process = Process::new(&self.program, &self.log)
            .arguments(["--name", &self.name, "--initial-cluster", &self.cluster])
            .arguments(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .arguments(["--listen-peer-urls", &peer])
            .arguments(["--initial-advertise-peer-urls", &known_at])
            .arguments(["--log-level", "error"])
            .arguments([Path::new("--data-dir"), &self.data]);
        if let Some(bytes) = self.quota_bytes {
            let quota = format!("--quota-backend-bytes={bytes}");
            self.process =
                std::mem::replace(&mut self.process, Process::new("", "")).arguments([quota]);
        }
    }

    /// Limits its data from its next start on; it must not run.
    pub fn set_quota(&mut self, bytes: Option<u64>) {
        self.quota_bytes = bytes;
        self.prepare();
    }

    /// Whether its data are limited.
    pub fn has_quota(&self) -> bool {
        self.quota_bytes.is_some()
    }

    /// Asks it for its ID.
    pub async fn learn_id(&mut self) -> anyhow::Result<()> {
        let status = self.client().await?.status().await?;
        let header = status.header().context("a status without a header")?;
        self.id = format!("{:x}", header.member_id());
        Ok(())
    }

    /// A client of this member alone, past the proxies.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let options = ConnectOptions::new()
            .with_timeout(Duration::from_secs(3))
            .with_connect_timeout(Duration::from_secs(1));
        let endpoint = self.place.client.to_string();
        Client::connect([endpoint], Some(options)).await.context("etcd does not answer")
    }

    /// Starts it, if it does not run.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.process.start()
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.process.runs()
    }

    /// Its process ID while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Ends it without any warning.
    pub async fn kill(&mut self) {
        self.process.kill().await;
    }

    /// Suspends it.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// The etcd binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Where it writes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What `snapshot restore` needs to write this member's data to `data`.
    pub fn restore_arguments(&self, data: &Path) -> Vec<String> {
        let known_at = format!("http://{}", self.place.known_at);
        [
            ("--name", self.name.as_str()),
            ("--initial-cluster", &self.cluster),
            ("--initial-advertise-peer-urls", &known_at),
            ("--data-dir", &data.display().to_string()),
        ]
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect()
    }

    /// From its next start on it uses these data; the old ones are removed.
    pub fn use_data(&mut self, data: &Path) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.data)?;
        data.clone_into(&mut self.data);
        self.prepare();
        Ok(())
    }
}
