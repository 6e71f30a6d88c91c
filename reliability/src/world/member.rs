//! One etcd member.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use etcd_client::{Client, ConnectOptions};
use leasehold_testkit::{etcd::MemberConfig, process::Process};

/// The prefix of all keys of a run.
pub const PREFIX: &str = "/reliability";

/// A member that can be killed, suspended and started again.
#[derive(Debug)]
pub struct Member {
    /// Its name and addresses.
    pub config: MemberConfig,
    /// Its ID in the cluster, in hexadecimal; stays the same over a restore.
    pub id: String,
    program: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// The limit of its data; etcd's default if absent.
    quota_bytes: Option<u64>,
    process: Process,
}

impl Member {
    /// A member that does not run yet, with an unknown ID.
    pub fn new(config: MemberConfig, program: &Path, folder: &Path) -> Self {
        let data = folder.join(format!("{}-data", config.name));
        let log = folder.join(format!("{}-log", config.name));
        let quota_bytes = None;
        Self {
            id: String::new(),
            process: process(program, &config, &data, &log, quota_bytes),
            program: program.to_owned(),
            config,
            data,
            log,
            quota_bytes,
        }
    }

    /// Limits its data from its next start on; it must not run.
    pub fn set_quota(&mut self, bytes: Option<u64>) {
        self.quota_bytes = bytes;
        self.configure();
    }

    fn configure(&mut self) {
        self.process =
            process(&self.program, &self.config, &self.data, &self.log, self.quota_bytes);
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
        let endpoint = self.config.client.to_string();
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

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Suspends it.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process.suspend()
    }

    /// Resumes it.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    /// The etcd binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// From its next start on it uses these data; the old ones are removed.
    pub fn use_data(&mut self, data: &Path) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.data)?;
        data.clone_into(&mut self.data);
        self.configure();
        Ok(())
    }
}

fn process(
    program: &Path,
    config: &MemberConfig,
    data: &Path,
    log: &Path,
    quota_bytes: Option<u64>,
) -> Process {
    let quota = quota_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}"));
    Process::new(program).arguments(config.arguments(data, "http")).arguments(quota).log_to(log)
}
