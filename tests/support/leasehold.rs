//! The real binary, as a child process of the test.

use std::{
    fs::{self, File},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::Instant;

const READY_WITHIN: Duration = Duration::from_secs(20);
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// A running `leasehold`, killed when dropped.
pub struct Leasehold {
    child: Child,
    folder: TempDir,
}

impl Leasehold {
    /// Starts `leasehold serve` with one store and waits until its socket
    /// answers.
    pub fn serve(store: &str, arguments: &[&str]) -> Self {
        let leasehold = Self::spawn(&[&["serve", "--store", store], arguments].concat());
        leasehold.ready(store);
        leasehold
    }

    /// Starts it with these arguments and a socket folder of its own.
    pub fn spawn(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(arguments)
            .env("DAPR_COMPONENTS_SOCKETS_FOLDER", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Waits until a socket answers.
    pub fn ready(&self, store: &str) {
        let give_up = Instant::now() + READY_WITHIN;
        while UnixStream::connect(self.socket(store)).is_err() {
            assert!(Instant::now() < give_up, "no {store}.sock; log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
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

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// All that it has logged, once it has ended. Lines are written after what
    /// they tell of, so what a call had logged may be missing before.
    pub fn whole_log(mut self) -> String {
        self.signal("TERM");
        self.exited();
        self.log()
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits until it has ended by itself.
    pub fn exited(&mut self) -> ExitStatus {
        let give_up = Instant::now() + GONE_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < give_up, "still running; log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Leasehold {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
