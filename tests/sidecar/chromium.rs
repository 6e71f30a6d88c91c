//! Lock calls of a page in a real browser, headless Chromium.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::StatusCode,
    response::Html,
    routing::{get, post},
};
use http::Method;
use tokio::{net::TcpListener, sync::mpsc, time::timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::binary::{Binary, component};

/// A browser takes seconds to start, and many of them on a busy machine.
const BROWSER_PATIENCE: Duration = Duration::from_secs(120);
/// A name that the browser resolves to this machine.
const EVIL: &str = "evil.example";

/// The report of a page: the answer to each of its attempts.
type Results = BTreeMap<String, String>;

/// The beginning of each page. `attempt` records the status and the body of an
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
const report = () => fetch("/report", { method: "POST", body: JSON.stringify(results) });
"#;

/// Every request that a page can send to another origin, each for a separate lock.
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
  await report();
})();
</script>"#;

/// The resources that `ATTACKS` would lock.
const ATTACKED: [&str; 7] =
    ["beacon", "simple", "no-cors", "preflight", "stream", "form", "alpha1"];

/// A web site on its own port, with one page, which reports its results.
struct Site {
    address: SocketAddr,
    reported: mpsc::Receiver<Results>,
    _server: AbortOnDropHandle<()>,
}

impl Site {
    /// Serves a page that attacks `target`.
    async fn serve(target: &str) -> Self {
        let page = format!("{PRELUDE}const TARGET = {target:?};{ATTACKS}");
        let (sender, reported) = mpsc::channel(1);
        let from_page = move |body: Bytes| async move {
            let _ = sender.send(serde_json::from_slice(&body).unwrap()).await;
            StatusCode::NO_CONTENT
        };
        let router = Router::new()
            .route("/page", get(|| async { Html(page) }))
            .route("/report", post(from_page));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, reported, _server: AbortOnDropHandle::new(server) }
    }
}

/// A Chromium with a new profile, killed with its helper processes when dropped.
struct Browser {
    child: Child,
    /// The folder of its files.
    folder: PathBuf,
}

impl Browser {
    fn open(url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = Command::new("chromium")
            // Root cannot have the sandbox, and the pages are our own.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-dev-shm-usage"])
            .arg(format!(
                "--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP * ~NOTFOUND, \
                 EXCLUDE 127.0.0.1, EXCLUDE 127.0.0.1, EXCLUDE localhost"
            ))
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(url)
            .env("HOME", &folder)
            .env("TMPDIR", &folder)
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
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
        // Its helper processes may write until they have ended, too.
        for _ in 0..200 {
            let _ = fs::remove_dir_all(&self.folder);
            if !self.folder.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert!(thread::panicking(), "{} is left", self.folder.display());
    }
}

/// The status of a TryLock from no browser.
async fn try_lock(sidecar: &Binary, resource: &str) -> u16 {
    let path = format!("/v1.0-alpha2/lock/locks/{resource}");
    sidecar.call(Method::POST, &path, r#"{"immediate":true}"#).await.status.as_u16()
}

/// Trap: sidecar 55
#[tokio::test]
#[ignore = "needs Chromium; make test-all runs it"]
async fn a_page_of_another_site_takes_no_lock() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.memory", "[]");
    let sidecar = Binary::start(yaml.path(), &[]).await;
    assert_eq!(try_lock(&sidecar, "victim").await, 200);
    let mut site = Site::serve(&format!("http://{}", sidecar.http)).await;
    let browser = Browser::open(&format!("http://{EVIL}:{}/page", site.address.port()));
    let Ok(reported) = timeout(BROWSER_PATIENCE, site.reported.recv()).await else {
        panic!("the page reported nothing; Chromium's log:\n{}", browser.log())
    };
    let results = reported.unwrap();
    for resource in ATTACKED {
        assert!(results.contains_key(resource), "{resource} was not tried: {results:#?}");
        assert_eq!(try_lock(&sidecar, resource).await, 200, "{resource}: {results:#?}");
    }
    assert_eq!(try_lock(&sidecar, "victim").await, 409, "{results:#?}");
    for attempt in ["simple", "preflight", "force"] {
        assert_eq!(results[attempt], "unreadable", "{results:#?}");
    }
}
