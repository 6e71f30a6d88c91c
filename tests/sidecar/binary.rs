//! `leasehold sidecar`, the real binary, as a child process of a test.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::body::Body;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::harness::Answer;

/// Within what time it must listen: it opens its stores first.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running sidecar on ports that the system chose, killed when dropped.
pub struct Binary {
    child: Child,
    folder: TempDir,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    client: Client<HttpConnector, Body>,
}

impl Binary {
    /// Starts it over a folder of component YAML and waits until it listens.
    pub async fn start(yaml: &Path, arguments: &[&str]) -> Self {
        Self::start_with(yaml, arguments, &[]).await
    }

    /// The same, with environment variables.
    pub async fn start_with(
        yaml: &Path,
        arguments: &[&str],
        variables: &[(&str, &Path)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .args(["sidecar", "--app-id", "app", "--dapr-listen-addresses", "127.0.0.1"])
            .args(["--dapr-grpc-port", "0", "--dapr-http-port", "0", "--resources-path"])
            .arg(yaml)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let give_up = Instant::now() + READY_WITHIN;
        let (grpc, http) = loop {
            let told = fs::read_to_string(&log).unwrap();
            if let [grpc, http] = *listening(&told) {
                break (grpc, http);
            }
            let ended = child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > give_up {
                let _ = child.kill();
                panic!("it does not listen ({ended:?}); log:\n{told}");
            }
            sleep(Duration::from_millis(5)).await;
        };
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { child, folder, grpc, http, client }
    }

    /// Sends it a signal by its name, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let arguments = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(arguments).status().unwrap().success());
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// One HTTP/1.1 call whose body is still to be read.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Body>,
    ) -> Response<Incoming> {
        let url = format!("http://{}{path}", self.http);
        let request = Request::builder().method(method).uri(url).body(body.into()).unwrap();
        self.client.request(request).await.unwrap()
    }

    /// One HTTP/1.1 call.
    pub async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        Answer::read(self.open(method, path, body).await).await
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.call(Method::POST, path, body).await
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The addresses that it says it listens on: gRPC's, then HTTP's. A line that
/// is still being written has no end yet.
fn listening(log: &str) -> Vec<SocketAddr> {
    let ended = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    ended
        .filter_map(|line| line.trim_end().split_once("listening address="))
        .map(|(_, address)| address.parse().unwrap())
        .collect()
}

/// Writes a component of a lock type into a folder of component YAML.
/// `metadata` is the YAML of its items.
pub fn component(yaml: &Path, name: &str, kind: &str, metadata: &str) {
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: {name}\n\
         spec:\n  type: {kind}\n  version: v1\n  metadata: {metadata}\n\
         auth:\n  secretStore: vault\n"
    );
    // Put in place whole, so that a reload sees all of it or nothing.
    let (whole, partial) =
        (yaml.join(format!("{name}.yaml")), yaml.join(format!("{name}.part")));
    fs::write(&partial, text).unwrap();
    fs::rename(partial, whole).unwrap();
}
