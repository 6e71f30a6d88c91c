//! `leasehold redis-front`, the command.

use std::{fs, net::SocketAddr, path::Path, process::ExitStatus};

use anyhow::Context as _;
use leasehold_testkit::{
    leasehold::{Leasehold, front_address, program},
    process::Process,
    wait::eventually,
};
use tempfile::TempDir;

use crate::client::{Client, PATIENCE};

/// A process that serves a front, killed when dropped.
pub struct Binary {
    pub process: Leasehold,
    pub address: SocketAddr,
    yaml: TempDir,
}

impl Binary {
    /// A front over memory, with more options.
    pub async fn memory(options: &[&str]) -> Self {
        Self::over("memory", &[], options).await
    }

    /// A front over a store with these properties.
    pub async fn over(kind: &str, properties: &[(&str, &str)], options: &[&str]) -> Self {
        let yaml = components(kind, properties);
        let process = redis_front(yaml.path(), options);
        Self::of(Leasehold::launch(process).unwrap(), yaml).await
    }

    /// A process that serves a front.
    pub async fn of(process: Leasehold, yaml: TempDir) -> Self {
        let address = eventually(PATIENCE, "it listens", async || {
            front_address(&process.log()).with_context(|| process.log())
        })
        .await
        .unwrap();
        Self { process, address, yaml }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub fn yaml(&self) -> &Path {
        self.yaml.path()
    }
}

/// The command with the store `lockstore`, on a port that the system chooses unless the options
/// name one.
pub fn redis_front(yaml: &Path, options: &[&str]) -> Process {
    let listens = options.iter().any(|option| ["--listen", "--unix-socket"].contains(option));
    let port: &[&str] = if listens { &[] } else { &["--listen", "127.0.0.1:0"] };
    Process::new(program())
        .arguments(["redis-front", "--store", "lockstore"])
        .arguments([Path::new("--resources-path"), yaml])
        .arguments(port)
        .arguments(options)
}

/// A folder with the component `lockstore`, whose keys have no prefix but Dapr's `lock||`.
pub fn components(kind: &str, properties: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let items: String = [("keyPrefix", "none")]
        .iter()
        .chain(properties)
        .map(|(name, value)| format!("  - {{name: {name}, value: \"{value}\"}}\n"))
        .collect();
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: lockstore}}\n\
         spec:\n  type: lock.{kind}\n  version: v1\n  metadata:\n{items}"
    );
    fs::write(folder.path().join("lockstore.yaml"), text).unwrap();
    folder
}

/// Runs the command, which must end by itself. Returns its exit status and its log.
pub fn refused(process: Process) -> (ExitStatus, String) {
    let mut process = Leasehold::launch(process).unwrap();
    (process.exited(), process.log())
}
