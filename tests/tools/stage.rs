//! A store with locks, and the program.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use leasehold_lock::{AcquireRequest, Granted, Holder, LockError, Mode, ResourceId, Store};
use leasehold_pluggable::PluggableComponent;
use leasehold_testkit::{
    leasehold::{Leasehold, program},
    wait,
};
use tempfile::TempDir;

/// A component's socket with an instance `locks` on the memory store.
pub struct Stage {
    serving: Leasehold,
    _yaml: TempDir,
    store: Store,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn is(&self, status: i32, stdout: &str) {
        assert_eq!((self.status, &*self.stdout), (status, stdout), "{self:?}");
    }

    /// Checks the status, and that the message has this text.
    #[track_caller]
    pub fn says(&self, status: i32, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.stderr.contains(part), "{part:?} is not in {self:?}");
    }
}

/// A component of this type and with these items, under the name `locks`.
pub fn component(kind: &str, items: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\n\
         spec:\n  type: lock.{kind}\n  version: v1\n  metadata: [{items}]\n"
    );
    fs::write(folder.path().join("locks.yaml"), text).unwrap();
    folder
}

/// The program with nothing of a store in its environment. Nobody answers on its standard input.
pub fn leasehold(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    for name in ["STORE", "PASSWORD", "PASSWORD_FILE"] {
        command.env_remove(format!("LEASEHOLD_{name}"));
    }
    for name in ["DAPR_GRPC_ENDPOINT", "DAPR_GRPC_PORT", "DAPR_API_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Stage {
    pub async fn start() -> Self {
        let yaml = component("memory", "");
        let path = yaml.path().to_str().unwrap();
        let serving = Leasehold::serve("memory", &["--resources-path", path]);
        serving.ready("memory");
        let store =
            PluggableComponent::attach(serving.socket("memory"), "locks").await.unwrap();
        Self { serving, _yaml: yaml, store }
    }

    /// What `--store` takes for it.
    pub fn url(&self) -> String {
        format!("unix:{}?instance=locks", self.serving.socket("memory").display())
    }

    /// Runs a command on the store.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = leasehold(arguments);
        command.env("LEASEHOLD_STORE", self.url());
        command
    }

    pub async fn lock(&self, resource: &str, holder: &str) -> Granted {
        self.locked(resource, holder, Mode::Exclusive).await.unwrap()
    }

    pub async fn share(&self, resource: &str, holder: &str) -> Granted {
        self.locked(resource, holder, Mode::Shared).await.unwrap()
    }

    async fn locked(
        &self,
        resource: &str,
        holder: &str,
        mode: Mode,
    ) -> Result<Granted, LockError> {
        let granted = self.store.try_lock(request(resource, holder, mode)).await?;
        granted.receipt.try_accept()?;
        Ok(granted)
    }

    /// Waits for a resource, in a task.
    pub fn wait(&self, resource: &str, holder: &str) -> tokio::task::JoinHandle<()> {
        let (store, request) = (self.store.clone(), request(resource, holder, Mode::Exclusive));
        tokio::spawn(async move {
            let _ = store.lock(request).await;
        })
    }
}

fn request(resource: &str, holder: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest {
        holder: Holder::new(holder).unwrap(),
        mode,
        ttl: Some(Duration::from_secs(600)),
        ..AcquireRequest::new(ResourceId::new(resource).unwrap())
    }
}

/// The ID of a grant, as commands show it.
pub fn id(granted: &Granted) -> String {
    granted.id.unwrap().to_string()
}

/// Asks until there is an answer.
pub async fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let asked = async || ask().ok_or_else(|| anyhow::anyhow!("no answer"));
    wait::eventually(Duration::from_secs(30), what, asked).await.unwrap()
}
