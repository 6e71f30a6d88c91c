//! `leasehold sidecar`, the real binary, as a child process of a test.

use std::{fs, net::SocketAddr, path::Path};

use axum::body::Body;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold_testkit::{leasehold::Leasehold, process::Signal};

use crate::harness::Answer;

/// A running sidecar on ports that the system chose, killed when dropped.
pub struct Binary {
    process: Leasehold,
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
        let mut process = Leasehold::sidecar(yaml, arguments, variables);
        let (grpc, http) = process.listening().await.unwrap();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { process, grpc, http, client }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// One HTTP/1.1 call; the body is not read yet.
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

/// Writes a component of a lock type into a folder of component YAML.
/// `metadata` is the YAML of its items.
pub fn component(yaml: &Path, name: &str, kind: &str, metadata: &str) {
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: {name}\n\
         spec:\n  type: {kind}\n  version: v1\n  metadata: {metadata}\n\
         auth:\n  secretStore: vault\n"
    );
    // Moved into place, so that a reload sees the whole file or nothing.
    let (whole, partial) =
        (yaml.join(format!("{name}.yaml")), yaml.join(format!("{name}.part")));
    fs::write(&partial, text).unwrap();
    fs::rename(partial, whole).unwrap();
}
