//! Lock calls of pages in a real browser, headless Chromium.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{StatusCode, Uri},
    response::{Html, IntoResponse as _},
    routing::{get, post},
};
use http::Method;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::mpsc, task::AbortHandle, time::timeout};

use crate::binary::{Binary, component};

/// A browser takes seconds to start, and many of them on a busy machine.
const BROWSER_PATIENCE: Duration = Duration::from_secs(120);
/// Names that the browser resolves to this machine.
const EVIL: &str = "evil.example";
const APP: &str = "app.example";

/// What a page tells: the answer to each of its attempts.
type Results = BTreeMap<String, String>;

/// What each page begins with. `attempt` notes the status and the body of an
/// answer, as far as the browser shows them to the page.
const PRELUDE: &str = r#"<!doctype html><title>page</title><body><script>
const results = {};
async function attempt(name, run) {
  try {
    const answer = await run(name);
    results[name] = answer instanceof Response && answer.type !== "opaque"
      ? `${answer.status} ${await answer.text()}`
      : "sent";
  } catch (error) {
    results[name] = "unreadable";
  }
}
const tell = () => fetch("/told", { method: "POST", body: JSON.stringify(results) });
"#;

/// All that a page can send to a lock of another's, each for a lock of its own.
const ATTACKS: &str = r#"
const url = (name) => `${TARGET}/v1.0-alpha2/lock/locks/${name}`;
const body = '{"immediate":true,"ttl":"60s"}';
const json = { "content-type": "application/json" };
(async () => {
  await attempt("beacon", async (name) => navigator.sendBeacon(url(name), body));
  await attempt("simple", (name) => fetch(url(name), { method: "POST", body }));
  await attempt("no-cors", (name) => fetch(url(name), { method: "POST", mode: "no-cors", body }));
  await attempt("preflight", (name) => fetch(url(name), { method: "POST", headers: json, body }));
  await attempt("stream", async (name) => {
    // Kept open: a lock of a stream ends with it.
    window.stream = await fetch(url(name), {
      method: "POST", mode: "no-cors", headers: { accept: "application/x-ndjson" }, body,
    });
  });
  await attempt("form", (name) => new Promise((sent) => {
    const frame = document.createElement("iframe");
    frame.name = "answer";
    document.body.append(frame);
    const form = document.createElement("form");
    Object.assign(form, { method: "post", enctype: "text/plain", target: "answer", action: url(name) });
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: '{"immediate":true,"requestID":"', value: '"}' });
    form.append(field);
    document.body.append(form);
    frame.onload = sent;
    form.submit();
  }));
  await attempt("alpha1", () => fetch(`${TARGET}/v1.0-alpha1/lock/locks`, {
    method: "POST", mode: "no-cors",
    body: '{"resourceId":"alpha1","lockOwner":"page","expiryInSeconds":60}',
  }));
  await attempt("force", () => fetch(url("victim"), { method: "DELETE", body: '{"force":true}' }));
  await tell();
})();
</script>"#;

/// The resources that `ATTACKS` would lock.
const ATTACKED: [&str; 7] =
    ["beacon", "simple", "no-cors", "preflight", "stream", "form", "alpha1"];

/// What a page of the app's own does.
const LIFE: &str = r#"
const url = `${TARGET}/v1.0-alpha2/lock/locks/own`;
const headers = { "content-type": "application/json" };
const call = (method, body) => fetch(url, { method, headers, body: JSON.stringify(body) });
(async () => {
  let lockID;
  await attempt("lock", async () => {
    const answer = await call("POST", { immediate: true });
    lockID = (await answer.clone().json()).lockID;
    return answer;
  });
  await attempt("held", () => call("POST", { immediate: true }));
  await attempt("renew", () => call("PUT", { lockID }));
  await attempt("unlock", () => call("DELETE", { lockID }));
  const alpha1 = await fetch(`${TARGET}/v1.0-alpha1/lock/locks`, {
    method: "POST", headers, body: '{"resourceId":"a","lockOwner":"page","expiryInSeconds":5}',
  });
  results.token = alpha1.headers.get("leasehold-fencing-token");
  await tell();
})();
</script>"#;

/// A web site on a port of its own, whose pages tell what they found out.
struct Site {
    listener: TcpListener,
    address: SocketAddr,
}

/// A site that is served, until it is dropped.
struct Served {
    told: mpsc::Receiver<Results>,
    server: AbortHandle,
}

impl Site {
    async fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    fn origin(&self, host: &str) -> String {
        format!("http://{host}:{}", self.address.port())
    }

    /// Serves a page whose script calls `target`, or its own origin if that is
    /// empty. As after a DNS name was rebound, all else that comes to the site
    /// reaches the sidecar as the browser has sent it.
    fn serve(self, target: &str, script: &str, sidecar: SocketAddr) -> Served {
        let page = format!("{PRELUDE}const TARGET = {target:?};{script}");
        let (tell, told) = mpsc::channel(1);
        let client: Client<HttpConnector, Body> =
            Client::builder(TokioExecutor::new()).build_http();
        let rebound = move |mut request: Request| async move {
            let path = request.uri().path_and_query().unwrap().clone();
            let there = Uri::builder().scheme("http").authority(sidecar.to_string());
            *request.uri_mut() = there.path_and_query(path).build().unwrap();
            match client.request(request).await {
                Ok(answer) => answer.map(Body::new).into_response(),
                Err(_) => StatusCode::BAD_GATEWAY.into_response(),
            }
        };
        let told_by_page = move |body: Bytes| async move {
            let _ = tell.send(serde_json::from_slice(&body).unwrap()).await;
            StatusCode::NO_CONTENT
        };
        let router = Router::new()
            .route("/page", get(|| async { Html(page) }))
            .route("/told", post(told_by_page))
            .fallback(rebound);
        let server = tokio::spawn(async { axum::serve(self.listener, router).await.unwrap() });
        Served { told, server: server.abort_handle() }
    }
}

impl Served {
    /// Opens the page in a browser of its own, and returns what it tells.
    async fn visited(mut self, origin: &str) -> (Results, Browser) {
        let browser = Browser::open(&format!("{origin}/page"));
        match timeout(BROWSER_PATIENCE, self.told.recv()).await {
            Ok(told) => (told.unwrap(), browser),
            Err(_) => panic!("the page told nothing; Chromium's log:\n{}", browser.log()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A Chromium with a new profile, killed with its helper processes when dropped.
struct Browser {
    child: Child,
    folder: TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new("chromium")
            // Root cannot have the sandbox, and the pages are our own.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-dev-shm-usage"])
            .arg(format!(
                "--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP {APP} 127.0.0.1, \
                 MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
            ))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(url)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("chromium does not start ({error}); `make setup` installs it")
            });
        Self { child, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

async fn sidecar(arguments: &[&str]) -> (Binary, TempDir) {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.memory", "[]");
    let sidecar = Binary::start(yaml.path(), arguments).await;
    assert_eq!(try_lock(&sidecar, "victim").await, 200);
    (sidecar, yaml)
}

/// The status of a TryLock from no browser.
async fn try_lock(sidecar: &Binary, resource: &str) -> u16 {
    let path = format!("/v1.0-alpha2/lock/locks/{resource}");
    sidecar.call(Method::POST, &path, r#"{"immediate":true}"#).await.status.as_u16()
}

async fn must_be_unharmed(sidecar: &Binary, results: &Results) {
    for resource in ATTACKED {
        assert!(results.contains_key(resource), "{resource} was not tried: {results:#?}");
        assert_eq!(try_lock(sidecar, resource).await, 200, "{resource}: {results:#?}");
    }
    assert_eq!(try_lock(sidecar, "victim").await, 409, "{results:#?}");
}

#[tokio::test]
async fn a_page_of_another_site_takes_no_lock() {
    let (sidecar, _yaml) = sidecar(&[]).await;
    let site = Site::bind().await;
    let origin = site.origin(EVIL);
    let target = format!("http://{}", sidecar.http);
    let (results, _open) = site.serve(&target, ATTACKS, sidecar.http).visited(&origin).await;
    must_be_unharmed(&sidecar, &results).await;
    for attempt in ["simple", "preflight", "force"] {
        assert_eq!(results[attempt], "unreadable", "{results:#?}");
    }
}

/// The name of the page's site stands for this machine now. Its origin is
/// allowed here, so that only the name is left to be refused.
#[tokio::test]
async fn a_page_whose_name_was_rebound_takes_no_lock() {
    let site = Site::bind().await;
    let origin = site.origin(EVIL);
    let (sidecar, _yaml) = sidecar(&["--lock-allowed-origins", &origin]).await;
    let (results, _open) = site.serve("", ATTACKS, sidecar.http).visited(&origin).await;
    must_be_unharmed(&sidecar, &results).await;
    for attempt in ["simple", "preflight", "force"] {
        let told = &results[attempt];
        assert!(
            told.starts_with("403 ") && told.contains("is no name of a loopback address"),
            "{results:#?}"
        );
    }
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_locks_and_reads_the_answers() {
    let site = Site::bind().await;
    let origin = site.origin(APP);
    let (sidecar, _yaml) = sidecar(&["--lock-allowed-origins", &origin]).await;
    let target = format!("http://{}", sidecar.http);
    let (results, _open) = site.serve(&target, LIFE, sidecar.http).visited(&origin).await;
    for (call, told) in
        [("lock", "200 {"), ("held", "409 {"), ("renew", "200 {"), ("unlock", "204 ")]
    {
        assert!(results[call].starts_with(told), "{call}: {results:#?}");
    }
    assert!(results["token"].parse::<u64>().is_ok(), "{results:#?}");
    assert_eq!(try_lock(&sidecar, "own").await, 200, "it is unlocked");
}
