//! A process with metrics and probes.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use leasehold_testkit::{leasehold::Leasehold, wait};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::scrape::Scrape;

pub const WITHIN: Duration = Duration::from_secs(30);

/// A process and the address of its metrics and probes.
pub struct Probed {
    pub process: Leasehold,
    pub address: SocketAddr,
}

impl Probed {
    /// Waits until it listens for metrics and probes.
    pub async fn of(process: Leasehold) -> Self {
        let address = wait::eventually(WITHIN, "metrics", async || {
            let log = process.log();
            // Without an incomplete last line.
            let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let line = lines
                .find_map(|line| line.split_once("listening for metrics and probes address="));
            Ok(line.with_context(|| log.clone())?.1.trim().parse()?)
        });
        let address = address.await.unwrap();
        Self { process, address }
    }

    /// A sidecar over this folder of component YAML, and the address of its API.
    pub async fn sidecar(yaml: &Path, arguments: &[&str]) -> (Self, Api) {
        let arguments = [&["--metrics-port=0"], arguments].concat();
        let mut process = Leasehold::sidecar(yaml, &arguments, &[]);
        let (_, http) = process.listening().await.unwrap();
        (Self::of(process).await, Api(http))
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        call(self.address, Method::GET, path, "").await
    }

    pub async fn scrape(&self) -> Scrape {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200, "{text}");
        Scrape::of(text)
    }

    /// Waits until a series has this value.
    pub async fn shows(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let shown = wait::eventually(WITHIN, name, async || {
            let shown = self.scrape().await.sum(name, labels);
            ensure!((shown - value).abs() < 1e-9, "{labels:?} is {shown}, not {value}");
            Ok(())
        });
        shown.await.unwrap();
    }

    /// Waits until its probe of readiness is answered so.
    pub async fn is_ready(&self, status: u16) {
        let ready = wait::eventually(WITHIN, "/readyz", async || {
            let answer = self.get("/readyz").await;
            ensure!(answer.0 == status, "{answer:?}");
            Ok(())
        });
        ready.await.unwrap();
    }
}

/// The HTTP API of a sidecar.
#[derive(Clone, Copy)]
pub struct Api(pub SocketAddr);

impl Api {
    /// Calls the lock API for a resource of the store `s`. Returns the status and the answer.
    pub async fn lock(&self, method: Method, resource: &str, body: &str) -> (u16, Value) {
        let path = format!("/v1.0-alpha2/lock/s/{resource}");
        let (status, answer) = call(self.0, method, &path, body).await;
        (status, serde_json::from_str(&answer).unwrap_or_default())
    }

    /// Keeps a stream open until the task is aborted.
    pub fn stream(
        self,
        method: Method,
        path: &'static str,
        body: &'static str,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            let request =
                Request::builder().method(method).uri(format!("http://{}{path}", self.0));
            let request = request.header("accept", "application/x-ndjson");
            let client = Client::builder(TokioExecutor::new()).build_http();
            let answer = client.request(request.body(Body::from(body)).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
            std::future::pending::<()>().await;
        })
    }

    /// Acquires, and returns the lock ID.
    pub async fn acquire(&self, resource: &str, body: &str) -> String {
        let (status, answer) = self.lock(Method::POST, resource, body).await;
        assert_eq!(status, 200, "{answer}");
        answer["lockID"].as_str().unwrap().to_owned()
    }
}

pub async fn call(to: SocketAddr, method: Method, path: &str, body: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(format!("http://{to}{path}"));
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Writes the component `s` on memory.
pub fn component(yaml: &Path, metadata: &str) {
    component_of(yaml, "lock.memory", metadata);
}

/// Writes the component `s` of this type.
pub fn component_of(yaml: &Path, kind: &str, metadata: &str) {
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: s\n\
         spec:\n  type: {kind}\n  version: v1\n  metadata: {metadata}\n"
    );
    // Moved into place, so that a reload sees the whole file or nothing.
    std::fs::write(yaml.join("s.part"), text).unwrap();
    std::fs::rename(yaml.join("s.part"), yaml.join("s.yaml")).unwrap();
}

/// Fails unless the text is as a scraper needs it: each family with its help and type, once.
pub fn check_text(text: &str) -> Result<()> {
    let mut families = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').context("no type")?;
            ensure!(families.insert(name.to_owned()), "{name} twice");
            ensure!(kind != "untyped", "{name} has no type");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let of_histogram = ["_bucket", "_sum", "_count"];
            let family = of_histogram.iter().find_map(|end| name.strip_suffix(end));
            let is_known = families.contains(name)
                || family.is_some_and(|family| families.contains(family));
            ensure!(is_known, "{name} has no family");
        }
    }
    Ok(())
}
