//! etcd servers of the tests' own: child processes on free ports, in temporary
//! folders, killed on drop.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How often a server is started on other ports when it ends at once.
const STARTS_MAX: usize = 5;
/// How long a server may take to answer.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A version that the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Debian's.
    V34,
    /// Built from its Go module.
    V36,
}

impl Version {
    /// How test names call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V34 => "etcd34",
            Self::V36 => "etcd36",
        }
    }

    /// Its program, or why there is none.
    pub(crate) fn program(self) -> Result<PathBuf, String> {
        match self {
            Self::V34 => {
                let found = ["/usr/bin/etcd", "/usr/local/bin/etcd"];
                let found = found.iter().map(PathBuf::from).find(|path| path.exists());
                found.ok_or_else(|| "there is no etcd; apt-get install etcd-server".to_owned())
            }
            Self::V36 => built(),
        }
    }
}

/// Builds etcd 3.6 once; cached under `target/`.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = root.join("target/etcd36/etcd");
        if program.exists() {
            return Ok(program);
        }
        let output = Command::new("go")
            .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(root.join("tests/etcd36"))
            .output()
            .map_err(|error| format!("there is no Go to build etcd 3.6 with: {error}"))?;
        if output.status.success() {
            Ok(program)
        } else {
            Err(format!("etcd 3.6 does not build: {}", String::from_utf8_lossy(&output.stderr)))
        }
    };
    BUILT.get_or_init(build).clone()
}

/// One member.
pub(crate) struct EtcdServer {
    program: PathBuf,
    args: Vec<String>,
    /// Its client URL.
    pub(crate) url: String,
    child: Option<Child>,
    folder: TempDir,
    tls: Option<TlsOptions>,
}

impl EtcdServer {
    /// A single member without TLS.
    pub(crate) async fn start(version: Version) -> Self {
        Self::start_with(version, &[]).await
    }

    /// The same with more arguments.
    pub(crate) async fn start_with(version: Version, args: &[&str]) -> Self {
        for _ in 0..STARTS_MAX {
            let (client, peer) = (free_port(), free_port());
            let cluster = format!("m0=http://127.0.0.1:{peer}");
            let mut server = Self::member(version, "m0", client, peer, &cluster, None);
            server.args.extend(args.iter().map(|arg| (*arg).to_owned()));
            server.restart();
            if server.comes_up().await {
                return server;
            }
        }
        panic!("etcd ended {STARTS_MAX} times when it was started")
    }

    fn member(
        version: Version,
        name: &str,
        client: u16,
        peer: u16,
        cluster: &str,
        tls: Option<&Tls>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{client}");
        let peer = format!("http://127.0.0.1:{peer}");
        let data = folder.path().join("data").display().to_string();
        let mut args: Vec<String> = [
            ("--name", name),
            ("--data-dir", &data),
            ("--listen-client-urls", &url),
            ("--advertise-client-urls", &url),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", cluster),
            ("--log-level", "error"),
        ]
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect();
        if let Some(tls) = tls {
            let write = |file: &str, pem: &str| {
                let path = folder.path().join(file);
                std::fs::write(&path, pem).unwrap();
                path.display().to_string()
            };
            args.push("--client-cert-auth".into());
            for (name, value) in [
                ("--trusted-ca-file", write("ca.pem", &tls.ca)),
                ("--cert-file", write("cert.pem", &tls.cert)),
                ("--key-file", write("key.pem", &tls.key)),
            ] {
                args.extend([name.to_owned(), value]);
            }
        }
        let program = version.program().unwrap();
        let tls = tls.map(Tls::options);
        Self { program, args, url, child: None, folder, tls }
    }

    /// Starts it, again with the same data.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Ends it without any warning.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Suspends the process: its connections stay open and nothing is answered.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets a suspended process go on.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Stops the server and copies its data; it is not started again.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn back_up(&mut self) {
        self.kill();
        self.copy("data", "backup");
    }

    /// Stops the server and puts the copied data in place of its own; it is not
    /// started again.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn restore(&mut self) {
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
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pid = self.child.as_ref().unwrap().id();
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
    }

    /// One of the metrics that it shows at `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let address = self.url.rsplit("://").next().unwrap();
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("etcd has no metric {name}")).trim().parse().unwrap()
    }

    /// Waits until it answers; `false` if it has ended instead, most likely because
    /// somebody took its port meanwhile.
    async fn comes_up(&mut self) -> bool {
        let give_up = Instant::now() + READY_TIMEOUT;
        loop {
            let child = self.child.as_mut().unwrap();
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if self.client().await.get("ready", None).await.is_ok() {
                return true;
            }
            assert!(Instant::now() < give_up, "etcd does not answer at {}", self.url);
            sleep(Duration::from_millis(30)).await;
        }
    }

    /// Waits until it answers.
    pub(crate) async fn ready(&self) {
        let give_up = Instant::now() + READY_TIMEOUT;
        loop {
            let mut client = self.client().await;
            if client.get("ready", None).await.is_ok() {
                return;
            }
            assert!(Instant::now() < give_up, "etcd does not answer at {}", self.url);
            sleep(Duration::from_millis(30)).await;
        }
    }

    /// A client of its own.
    pub(crate) async fn client(&self) -> Client {
        let mut options = ConnectOptions::new().with_timeout(Duration::from_secs(2));
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.clone());
        }
        Client::connect([&self.url], Some(options)).await.unwrap()
    }

    /// The current revision.
    pub(crate) async fn revision(&self) -> i64 {
        self.client().await.get("x", None).await.unwrap().header().unwrap().revision()
    }

    /// How many leases live.
    pub(crate) async fn leases(&self) -> usize {
        self.client().await.leases().await.unwrap().leases().len()
    }

    /// What the raft index is: every raft entry raises it by one.
    pub(crate) async fn raft_index(&self) -> u64 {
        self.client().await.status().await.unwrap().raft_index()
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Several members; TLS towards clients if asked.
pub(crate) struct EtcdCluster {
    /// The members.
    pub(crate) members: Vec<EtcdServer>,
    /// The certificates, if any.
    pub(crate) tls: Option<Tls>,
}

impl EtcdCluster {
    /// Starts `size` members and waits until all answer.
    pub(crate) async fn start(version: Version, size: usize, tls: bool) -> Self {
        let tls = tls.then(Tls::generate);
        for _ in 0..STARTS_MAX {
            let mut members = Self::members(version, size, tls.as_ref());
            for member in &mut members {
                member.restart();
            }
            let mut all_up = true;
            for member in &mut members {
                all_up = all_up && member.comes_up().await;
            }
            if all_up {
                return Self { members, tls };
            }
        }
        panic!("a member of etcd ended {STARTS_MAX} times when it was started")
    }

    fn members(version: Version, size: usize, tls: Option<&Tls>) -> Vec<EtcdServer> {
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (free_port(), free_port())).collect();
        let cluster: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}"))
            .collect();
        let cluster = cluster.join(",");
        let member = |(n, (client, peer)): (usize, &(u16, u16))| {
            EtcdServer::member(version, &format!("m{n}"), *client, *peer, &cluster, tls)
        };
        ports.iter().enumerate().map(member).collect()
    }

    /// The property `endpoints`.
    pub(crate) fn endpoints(&self) -> String {
        self.members.iter().map(|member| member.url.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Which member leads.
    pub(crate) async fn leader(&self) -> usize {
        for (n, member) in self.members.iter().enumerate() {
            let mut client = member.client().await;
            if let Ok(status) = client.status().await
                && status.leader() == status.header().unwrap().member_id()
            {
                return n;
            }
        }
        panic!("nobody leads")
    }
}

/// A CA, and one certificate for servers and clients alike, as PEM.
#[derive(Clone)]
pub(crate) struct Tls {
    /// The CA's certificate.
    pub(crate) ca: String,
    /// The certificate.
    pub(crate) cert: String,
    /// Its key.
    pub(crate) key: String,
}

impl Tls {
    /// New ones.
    pub(crate) fn generate() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "test CA");
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Self { ca: ca_cert.pem(), cert: cert.pem(), key: key.serialize_pem() }
    }

    fn options(&self) -> TlsOptions {
        TlsOptions::new()
            .ca_certificate(Certificate::from_pem(&self.ca))
            .identity(Identity::from_pem(&self.cert, &self.key))
    }
}

/// A port that nobody listens on, from below those that the system hands out by itself:
/// else a connection could take it before the server does.
pub(crate) fn free_port() -> u16 {
    let ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000));
    ports.take(1_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}
