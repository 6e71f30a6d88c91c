//! The real binary.

use std::{
    fs,
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::OnceLock,
    thread::sleep,
    time::Duration,
};

use anyhow::ensure;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::process::{Process, Signal};

const READY_WITHIN: Duration = Duration::from_secs(30);
const GONE_WITHIN: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The `leasehold` binary that the variable `LEASEHOLD` names. Without it, a test builds the
/// binary, and another program uses the one of its own build.
pub fn program() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> PathBuf {
    if let Some(named) = std::env::var_os("LEASEHOLD") {
        return named.into();
    }
    let this = std::env::current_exe().unwrap();
    let folder = this.parent().unwrap();
    // Tests are in a subfolder of the programs' folder.
    let Some(folder) = folder.parent().filter(|_| folder.ends_with("deps")) else {
        return folder.join("leasehold");
    };
    build(folder);
    folder.join("leasehold")
}

/// Builds the binary into this folder. Cargo does so only for tests of the binary's own
/// package; tests of other packages could find an old binary.
fn build(folder: &Path) {
    let mut build = Command::new(env!("CARGO"));
    // Both packages, so that dependencies have the same features as in a build of the
    // tests.
    build.args(["build", "--quiet", "-p", "leasehold", "-p", "leasehold-tests"]);
    build.args(["--bin", "leasehold", "--target-dir"]).arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "leasehold does not build");
}

/// A running `leasehold`, killed when dropped.
#[derive(Debug)]
pub struct Leasehold {
    /// Its process.
    pub process: Process,
    folder: TempDir,
}

impl Leasehold {
    /// Starts `leasehold serve` with one store and waits until its socket answers.
    pub fn serve(store: &str, arguments: &[&str]) -> Self {
        let leasehold = Self::spawn(&[&["serve", "--store", store], arguments].concat());
        leasehold.ready(store);
        leasehold
    }

    /// Starts it with these arguments and a new socket folder.
    pub fn spawn(arguments: &[&str]) -> Self {
        Self::launch(Process::new(program()).arguments(arguments)).unwrap()
    }

    /// Starts `leasehold sidecar` over a folder of component YAML, on ports that the
    /// system chooses.
    pub fn sidecar(yaml: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Self {
        let mut process = Process::new(program())
            .arguments(["sidecar", "--app-id", "app", "--dapr-listen-addresses", "127.0.0.1"])
            .arguments(["--dapr-grpc-port", "0", "--dapr-http-port", "0"])
            .arguments([Path::new("--resources-path"), yaml])
            .arguments(arguments);
        for (name, value) in variables {
            process = process.variable(name, value);
        }
        Self::logged(process, tempfile::tempdir().unwrap()).unwrap()
    }

    /// Starts `process` with a new socket folder.
    pub fn launch(process: Process) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let process = process.variable("DAPR_COMPONENTS_SOCKETS_FOLDER", folder.path());
        Self::logged(process, folder)
    }

    fn logged(process: Process, folder: TempDir) -> anyhow::Result<Self> {
        let mut process = process.log_to(folder.path().join("log"));
        process.start()?;
        Ok(Self { process, folder })
    }

    /// Waits until a socket answers. Blocks the thread.
    pub fn ready(&self, store: &str) {
        let give_up = Instant::now() + READY_WITHIN;
        while UnixStream::connect(self.socket(store)).is_err() {
            assert!(Instant::now() < give_up, "no {store}.sock; log:\n{}", self.log());
            sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a sidecar listens; its gRPC and its HTTP address.
    pub async fn listening(&mut self) -> anyhow::Result<(SocketAddr, SocketAddr)> {
        let give_up = Instant::now() + READY_WITHIN;
        loop {
            let ended = self.process.ended_by_itself();
            let log = self.log();
            if let [grpc, http] = addresses(&log)[..] {
                return Ok((grpc, http));
            }
            let waits = ended.is_none() && Instant::now() < give_up;
            ensure!(waits, "it does not listen ({ended:?}); log:\n{log}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The socket of a store.
    pub fn socket(&self, store: &str) -> PathBuf {
        self.folder.path().join(format!("{store}.sock"))
    }

    /// The folder of the sockets.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Its whole log, once it has ended. Lines are written asynchronously, so those
    /// of the last calls may be missing before.
    pub fn whole_log(mut self) -> String {
        self.signal(Signal::TERM);
        self.exited();
        self.log()
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.process.id().expect("it has ended")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Waits until it has ended by itself. Blocks the thread.
    pub fn exited(&mut self) -> ExitStatus {
        let give_up = Instant::now() + GONE_WITHIN;
        loop {
            if let Some(status) = self.process.ended_by_itself() {
                return status;
            }
            assert!(Instant::now() < give_up, "still running; log:\n{}", self.log());
            sleep(POLL_INTERVAL);
        }
    }
}

/// The address of a front in its log; `None` if it is not logged yet.
pub fn front_address(log: &str) -> Option<SocketAddr> {
    let mut addresses =
        whole_lines(log).filter_map(|line| line.split_once("of Redis address="));
    let (address, _) = addresses.next()?.1.split_once(' ')?;
    Some(address.parse().unwrap())
}

/// The addresses that a sidecar's log names: gRPC's, then HTTP's.
fn addresses(log: &str) -> Vec<SocketAddr> {
    whole_lines(log)
        .filter_map(|line| line.split_once("listening address=")?.1.split_whitespace().next())
        .map(|address| address.parse().unwrap())
        .collect()
}

/// The lines of a log, without an incomplete last one.
fn whole_lines(log: &str) -> impl Iterator<Item = &str> {
    log.split_inclusive('\n').filter(|line| line.ends_with('\n'))
}
