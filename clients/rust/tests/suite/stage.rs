//! The servers of a test, started by `leasehold-test-sidecar`.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, OnceLock},
};

use leasehold_client::{Locks, LocksBuilder};
use serde_json::Value;

/// A kind of store, and the servers shared by the cases that do not disturb them.
pub(crate) struct Backend {
    pub(crate) name: String,
    shared: OnceLock<Stage>,
}

impl Backend {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.trim().to_owned(), shared: OnceLock::new() }
    }

    pub(crate) fn shared(&self) -> &Stage {
        self.shared.get_or_init(|| self.start())
    }

    /// Servers for the caller alone.
    pub(crate) fn start(&self) -> Stage {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, environment: &[(&str, &str)]) -> Stage {
        Stage::start(&self.name, environment)
    }
}

/// A store, a sidecar and a proxy before it.
pub(crate) struct Stage {
    pub(crate) port: u64,
    pub(crate) proxy_port: u64,
    pub(crate) http_port: u64,
    launcher: Mutex<Launcher>,
}

struct Launcher {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Stage {
    fn start(backend: &str, environment: &[(&str, &str)]) -> Self {
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/debug");
        let program = env::var_os("LEASEHOLD_TEST_SIDECAR")
            .unwrap_or_else(|| Path::new(built).join("leasehold-test-sidecar").into());
        let mut process = Command::new(&program)
            .arg(backend)
            .env_remove("DAPR_API_TOKEN")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut launcher = Launcher { process, commands, answers };
        let line = launcher.line();
        let ports: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{} {backend} did not start: {line:?}", program.display())
        });
        let port = |name: &str| ports[name].as_u64().unwrap();
        let (port, proxy_port, http_port) =
            (port("grpcPort"), port("proxyPort"), port("httpPort"));
        Self { port, proxy_port, http_port, launcher: Mutex::new(launcher) }
    }

    /// Carries out a command; returns when it is done.
    pub(crate) fn command(&self, command: &str) {
        let mut launcher = self.launcher.lock().unwrap();
        writeln!(launcher.commands.as_mut().unwrap(), "{command}").unwrap();
        assert_eq!(launcher.line(), "ok", "{command}");
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn builder(&self) -> LocksBuilder {
        Locks::builder("lockstore").address(self.address())
    }

    /// A client with a connection of its own.
    pub(crate) fn locks(&self) -> Locks {
        self.builder().build().unwrap()
    }

    /// A client that calls through the proxy.
    pub(crate) fn locks_by_proxy(&self) -> Locks {
        self.builder().address(format!("127.0.0.1:{}", self.proxy_port)).build().unwrap()
    }
}

impl Launcher {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It ends when its standard input does.
        drop(self.commands.take());
        let _ = self.process.wait();
    }
}
