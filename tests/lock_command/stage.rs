//! Stores, the program, and the processes that it leaves behind.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::Duration,
};

use leasehold_testkit::{
    etcd::{EtcdServer, Version},
    leasehold::{Leasehold, program},
    redis::RedisServer,
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{runtime::Builder, time::Instant};

/// How long anything may take on a busy machine.
const WITHIN: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A late TERM, so that a busy machine has more time to renew. By default it comes a third of the
/// TTL before the end.
pub const TERM_LATE: [&str; 2] = ["--term-before", "500ms"];

/// Waits until this is so.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + WITHIN;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "{what}: not within {WITHIN:?}");
        sleep(POLL_INTERVAL);
    }
}

/// A store that commands of several processes share.
pub enum Backend {
    Redis(RedisServer),
    Etcd(EtcdServer),
    /// The socket of `leasehold serve`, with an instance `locks` on memory.
    Socket(Leasehold, #[allow(dead_code, reason = "kept")] TempDir),
}

impl Backend {
    pub fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    pub fn etcd() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self::Etcd(runtime.block_on(EtcdServer::start(Version::V34)))
    }

    pub fn socket() -> Self {
        Self::socket_with("")
    }

    /// The instance has these items.
    pub fn socket_with(items: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\n\
             spec: {{type: lock.memory, version: v1, metadata: [{items}]}}\n"
        );
        fs::write(folder.path().join("locks.yaml"), text).unwrap();
        let path = folder.path().to_str().unwrap();
        let serving = Leasehold::serve("memory", &["--resources-path", path]);
        Self::Socket(serving, folder)
    }

    /// What `--store` takes for it.
    pub fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Etcd(server) => format!("etcd://{}", server.address()),
            Self::Socket(serving, _) => {
                format!("unix:{}?instance=locks", serving.socket("memory").display())
            }
        }
    }

    /// Answers nothing from now on.
    pub fn suspend(&self) {
        match self {
            Self::Redis(server) => server.process.suspend().unwrap(),
            Self::Etcd(server) => server.pause(),
            Self::Socket(serving, _) => serving.process.suspend().unwrap(),
        }
    }

    pub fn resume(&self) {
        match self {
            Self::Redis(server) => server.process.resume().unwrap(),
            Self::Etcd(server) => server.resume(),
            Self::Socket(serving, _) => serving.process.resume().unwrap(),
        }
    }

    /// `leasehold lock` with these arguments, before it starts.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = leasehold(&["lock"]);
        if !arguments.contains(&"--ttl") {
            // A forced lock is noticed within a third of it.
            command.args(["--ttl", "6s"]);
        }
        if !arguments.contains(&"--term-before") {
            command.args(TERM_LATE);
        }
        command.args(arguments).env("LEASEHOLD_STORE", self.url());
        command
    }

    /// Starts `leasehold lock` with these arguments.
    pub fn lock(&self, arguments: &[&str]) -> Run {
        Run::start(self.command(arguments))
    }

    /// Runs `leasehold lock` to its end.
    pub fn ended(&self, arguments: &[&str]) -> (i32, String) {
        let mut run = self.lock(arguments);
        (run.status(), run.stderr())
    }

    /// Whether nobody holds the resource.
    pub fn is_free(&self, resource: &str) -> bool {
        match self.ended(&["-n", "-q", resource, "--", "true"]).0 {
            0 => true,
            75 => false,
            other => panic!("exit status {other}"),
        }
    }

    #[track_caller]
    pub fn becomes_free(&self, resource: &str) {
        until("the lock is released", || {
            // Each look starts processes, and other tests need the machine.
            sleep(LOOK_INTERVAL);
            self.is_free(resource).then_some(())
        });
    }

    /// Ends the lock as another caller would.
    pub fn force(&self, resource: &str) {
        let mut command = leasehold(&["force-unlock", resource, "--yes"]);
        let output = command.env("LEASEHOLD_STORE", self.url()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Backend {
    /// Ends the lock, if somebody has it.
    pub fn force_if_held(&self, resource: &str) {
        let mut command = leasehold(&["force-unlock", resource, "--yes"]);
        let output = command.env("LEASEHOLD_STORE", self.url()).output().unwrap();
        assert!([0, 1].contains(&output.status.code().unwrap()), "{output:?}");
    }
}

/// An option of `env`. A shell lets what it starts in the background ignore the keyboard's signals,
/// `nohup` HUP, and a signal that is ignored at the start stays so.
pub const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

/// The program with nothing of a store in its environment.
pub fn leasehold(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args([DEFAULT_SIGNALS.as_ref(), program().as_os_str()]);
    command.args(arguments).stdin(Stdio::null());
    for name in ["STORE", "PASSWORD", "PASSWORD_FILE"] {
        command.env_remove(format!("LEASEHOLD_{name}"));
    }
    for name in ["DAPR_GRPC_ENDPOINT", "DAPR_GRPC_PORT", "DAPR_API_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// A running `leasehold lock`; killed when dropped.
pub struct Run {
    child: Child,
    folder: TempDir,
}

impl Run {
    pub fn start(mut command: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| fs::File::create(folder.path().join(name)).unwrap();
        command.stdout(file("stdout")).stderr(file("stderr"));
        Self { child: command.spawn().unwrap(), folder }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The process that holds the lock.
    pub fn lock_process(&self) -> Pid {
        until("the lock process runs", || self.find_lock_process())
    }

    /// The same; `None` once the command has ended.
    pub fn lock_process_if_any(&mut self) -> Option<Pid> {
        until("the lock process runs", || match self.find_lock_process() {
            None if self.runs() => None,
            found => Some(found),
        })
    }

    fn find_lock_process(&self) -> Option<Pid> {
        let own = self.pid().as_raw_pid();
        let mut all = processes().into_values();
        let found = all.find(|process| process.parent == own && process.is("lock-process"));
        found.map(|process| process.pid)
    }

    /// Waits for its end. Returns the exit status, or minus the signal.
    #[track_caller]
    pub fn status(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let ended: ExitStatus = until("the command ends", || self.child.try_wait().unwrap());
        ended.code().unwrap_or_else(|| -ended.signal().unwrap_or(0))
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    pub fn stdout(&self) -> String {
        self.read("stdout")
    }

    pub fn stderr(&self) -> String {
        self.read("stderr")
    }

    /// Waits until the command has written this.
    #[track_caller]
    pub fn writes(&self, text: &str) {
        until(text, || self.stdout().contains(text).then_some(()));
    }

    /// Waits until leasehold has said this.
    #[track_caller]
    pub fn says(&self, text: &str) {
        until(text, || self.stderr().contains(text).then_some(()));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A word that marks the processes of one test: it stands on their command lines.
pub struct Marker(pub String);

impl Marker {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("marked-{}-{next}", std::process::id()))
    }

    /// The commands that carry it, without leasehold's own processes.
    pub fn running(&self) -> Vec<Process> {
        let all = processes().into_values();
        all.filter(|process| process.line.contains(&self.0) && !process.is_leasehold())
            .collect()
    }

    #[track_caller]
    pub fn is_gone(&self) {
        let running = self.running();
        assert!(running.is_empty(), "{running:?}");
    }

    #[track_caller]
    pub fn goes(&self) {
        until("what was started ends", || self.running().is_empty().then_some(()));
    }

    /// Waits until so many run.
    #[track_caller]
    pub fn run(&self, count: usize) {
        until("they run", || (self.running().len() == count).then_some(()));
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        for process in self.running() {
            let _ = kill_process(process.pid, Signal::KILL);
        }
    }
}

/// A process of this machine.
#[derive(Debug)]
pub struct Process {
    pub pid: Pid,
    pub parent: i32,
    line: String,
}

impl Process {
    fn is(&self, command: &str) -> bool {
        self.is_leasehold() && self.line.split('\0').nth(1) == Some(command)
    }

    /// Also while it is still the `env` that starts it.
    fn is_leasehold(&self) -> bool {
        let mut first = self.line.split('\0').take(3);
        first.any(|word| word == "/proc/self/exe" || Path::new(word) == program())
    }
}

fn processes() -> BTreeMap<i32, Process> {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let folder: PathBuf = entry.unwrap().path();
        let name = folder.file_name().and_then(|name| name.to_str()?.parse().ok());
        let Some(raw) = name else { continue };
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        // It may have ended.
        let (Some(line), Some(stat)) = (read("cmdline"), read("stat")) else { continue };
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| {
            let mut fields = rest.split(' ');
            (fields.next() != Some("Z")).then(|| fields.next()?.parse().ok())?
        });
        let (Some(parent), Some(pid)) = (parent, Pid::from_raw(raw)) else { continue };
        processes.insert(raw, Process { pid, parent, line });
    }
    processes
}
