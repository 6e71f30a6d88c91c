//! One leasehold process, with its own component YAML and log.

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use leasehold_testkit::{
    clock_shim::ClockShim, process::Process, proxy::Proxy, sentinel::MASTER_NAME,
    wait::eventually,
};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{Backend, INSTANCE, Settings, Weight, member, probe::Probe};

/// A drain ends within 10 s; the rest is for a busy machine.
const DRAIN_MAX: Duration = Duration::from_secs(15);
/// How soon it must serve once its backend answers: it retries its
/// initialisation every 5 s.
const SERVE_WITHIN: Duration = Duration::from_secs(30);
/// The system chooses the port of a front, another one at each start.
const ANY_PORT: &str = "127.0.0.1:0";

/// How a process serves its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serves {
    /// A component.
    Component,
    /// To clients of Redis.
    Front,
}

/// A process that serves one store.
#[derive(Debug)]
pub struct Leasehold {
    /// Its name in reports.
    pub name: String,
    /// Its proxies to the backend, one to each server.
    pub proxies: Vec<Proxy>,
    serves: Serves,
    backend: Backend,
    operation_timeout: Option<&'static str>,
    components: PathBuf,
    process: Process,
    clock: ClockShim,
    log: PathBuf,
    /// Where in the log its last start begins.
    started_at: u64,
    socket: PathBuf,
    /// A separate folder, because the paths of sockets must be short.
    _sockets: TempDir,
}

impl Leasehold {
    /// Prepares a process that reaches the backend over `proxies`.
    pub(super) fn new(
        name: String,
        serves: Serves,
        settings: &Settings,
        proxies: Vec<Proxy>,
    ) -> anyhow::Result<Self> {
        let backend = settings.backend;
        let folder = settings.folder.join(&name);
        let components = folder.join("components");
        fs::create_dir_all(&components)?;
        let clock = ClockShim::new(&folder)?;
        let sockets = tempfile::Builder::new().prefix("leasehold-").tempdir()?;
        let store = backend.kind();
        let log = folder.join("log");
        let mut process = Process::new(&settings.leasehold).log_to(&log);
        for (name, value) in clock.variables() {
            process.set_variable(name, value);
        }
        process = match serves {
            Serves::Component => process
                .arguments(["serve", "--store", store, "--socket-folder"])
                .arguments([sockets.path()]),
            Serves::Front => {
                process.arguments(["redis-front", "--store", INSTANCE, "--listen", ANY_PORT])
            }
        };
        process = process.arguments([Path::new("--resources-path"), &components]);
        let socket = sockets.path().join(format!("{store}.sock"));
        let mut leasehold = Self {
            name,
            proxies: Vec::new(),
            serves,
            backend,
            operation_timeout: settings.operation_timeout,
            components,
            process,
            clock,
            log,
            started_at: 0,
            socket,
            _sockets: sockets,
        };
        leasehold.use_ways(proxies)?;
        Ok(leasehold)
    }

    /// Reaches the backend over `proxies` from its next start on. Returns the previous
    /// ones.
    pub(super) fn use_ways(&mut self, proxies: Vec<Proxy>) -> anyhow::Result<Vec<Proxy>> {
        let yaml = yaml(self.backend, self.operation_timeout, &proxies);
        fs::write(self.components.join("locks.yaml"), yaml)?;
        Ok(std::mem::replace(&mut self.proxies, proxies))
    }

    /// Its component socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process ID while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Starts it, unless it runs. Fails if it ended by itself.
    pub fn start(&mut self) -> anyhow::Result<()> {
        self.has_not_crashed()?;
        if !self.runs() {
            self.started_at = fs::metadata(&self.log).map_or(0, |log| log.len());
        }
        self.process.start()
    }

    /// Fails if it ended by itself.
    pub fn has_not_crashed(&mut self) -> anyhow::Result<()> {
        match self.process.ended_by_itself() {
            Some(status) => {
                let log = self.log.display();
                anyhow::bail!("{} ended by itself with {status}; its log is {log}", self.name)
            }
            None => Ok(()),
        }
    }

    /// Fails if it ended by itself, or if its log has a panic of a task.
    pub fn is_sound(&mut self) -> anyhow::Result<()> {
        self.has_not_crashed()?;
        let log = &self.log;
        let text = fs::read(log).with_context(|| log.display().to_string())?;
        let text = String::from_utf8_lossy(&text);
        for defect in ["panicked", "this is a defect"] {
            let line = text.lines().find(|line| line.contains(defect));
            if let Some(line) = line {
                anyhow::bail!("{}: {line}; its log is {}", self.name, log.display());
            }
        }
        Ok(())
    }

    /// Its log since its last start.
    pub(super) fn log_since_start(&self) -> anyhow::Result<String> {
        let mut log = File::open(&self.log)?;
        log.seek(SeekFrom::Start(self.started_at))?;
        let mut text = String::new();
        log.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.process.runs()
    }

    /// Returns once it locks and unlocks over its component socket, if it has one.
    pub async fn ready(&self) -> anyhow::Result<()> {
        if self.serves == Serves::Front {
            return Ok(());
        }
        eventually(SERVE_WITHIN, &format!("{} serves", self.name), async || {
            Probe::connect(&self.socket).await?.cycle().await.map(drop)
        })
        .await
        .with_context(|| format!("its log is {}", self.log.display()))
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Drains it, which must succeed.
    pub async fn drain(&mut self) -> anyhow::Result<()> {
        let status = self.process.terminate(DRAIN_MAX).await?;
        anyhow::ensure!(status.success(), "{} ended its drain with {status}", self.name);
        Ok(())
    }

    /// Suspends it.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.process.suspend()
    }

    /// Resumes it.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    /// Suspends it like a suspension of its machine: its monotonic clock does not count
    /// the time.
    pub async fn sleep(&mut self, during: Duration) -> anyhow::Result<()> {
        self.suspend()?;
        sleep(during).await;
        self.clock.hide(during)?;
        self.resume()
    }

    /// The resources that it uses; `None` if it does not run.
    pub fn weight(&self) -> Option<Weight> {
        let process = PathBuf::from(format!("/proc/{}", self.process.id()?));
        let status = fs::read_to_string(process.join("status")).ok()?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = rss.trim().trim_end_matches("kB").trim().parse().ok()?;
        let descriptors = fs::read_dir(process.join("fd")).ok()?.count() as u64;
        Some(Weight { name: self.name.clone(), rss_bytes: kilobytes * 1024, descriptors })
    }
}

fn yaml(backend: Backend, operation_timeout: Option<&str>, proxies: &[Proxy]) -> String {
    use std::fmt::Write as _;
    let hosts: Vec<&str> = proxies.iter().map(Proxy::address).collect();
    let mut items = match backend {
        Backend::Memory => Vec::new(),
        Backend::Redis => vec![("redisHost", hosts.join(","))],
        Backend::RedisSentinel => vec![
            ("redisHost", hosts.join(",")),
            ("failover", "true".to_owned()),
            ("sentinelMasterName", MASTER_NAME.to_owned()),
        ],
        Backend::RedisCluster => {
            vec![("redisHost", hosts.join(",")), ("redisType", "cluster".to_owned())]
        }
        Backend::Etcd => {
            vec![("endpoints", hosts.join(",")), ("keyPrefixPath", member::PREFIX.to_owned())]
        }
    };
    items.extend(operation_timeout.map(|timeout| ("operationTimeout", timeout.to_owned())));
    let mut yaml = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: {INSTANCE}\nspec:\n  \
         type: lock.{}\n  version: v1\n  metadata:\n",
        backend.kind()
    );
    for (name, value) in &items {
        let _ = writeln!(yaml, "    - name: {name}\n      value: \"{value}\"");
    }
    if items.is_empty() {
        yaml.truncate(yaml.len() - "  metadata:\n".len());
    }
    yaml
}
