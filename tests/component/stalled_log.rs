//! A process continues while nobody reads its stderr.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;

const PATIENCE: Duration = Duration::from_secs(30);

/// `leasehold serve` with its stderr on a pipe.
struct Piped {
    child: Child,
    folder: TempDir,
    stderr: Option<ChildStderr>,
}

impl Piped {
    fn serve(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(leasehold_testkit::leasehold::program())
            .args(["serve", "--store", "memory", "--socket-folder"])
            .arg(folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take();
        Self { child, folder, stderr }
    }

    async fn client(&self) -> Client {
        let socket = self.folder.path().join("memory.sock");
        let give_up = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < give_up, "it does not listen");
            sleep(Duration::from_millis(5)).await;
        }
        Client::initialised(&socket).await
    }

    fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    async fn exited(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < give_up, "still running");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Causes log lines of some 400 bytes each, by refusals.
async fn have_lines_logged(client: &Client, lines: usize) {
    let nobody: &'static str = "nobody".repeat(40).leak();
    let client = client.instance(nobody);
    for _ in 0..lines {
        let refused = timeout(PATIENCE, client.try_lock("r")).await.expect("no answer");
        assert!(refused.is_err());
    }
}

/// Trap: component 53
#[tokio::test]
async fn a_reader_of_stderr_that_stalls_hangs_nothing() {
    let mut process = Piped::serve(&["--log-level", "debug"]);
    let client = process.client().await;
    have_lines_logged(&client, 2_000).await;
    drop(client);
    process.terminate();
    assert_eq!(process.exited().await.code(), Some(0));
}

/// Trap: component 53
#[tokio::test]
async fn what_a_stalled_reader_missed_is_counted_once_it_reads_again() {
    let mut process = Piped::serve(&["--log-level", "debug", "--log-as-json"]);
    let client = process.client().await;
    have_lines_logged(&client, 4_000).await;
    let stderr = process.stderr.take().unwrap();
    let reader = tokio::task::spawn_blocking(move || {
        let mut lines = BufReader::new(stderr).lines();
        let count = lines.by_ref().map(Result::unwrap).find_map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line).expect(&line);
            line["lines"].as_u64().filter(|_| line.to_string().contains("dropped"))
        });
        (count, lines)
    });
    let (count, lines) =
        timeout(PATIENCE, reader).await.expect("no line about dropped lines").unwrap();
    assert!(count.is_some_and(|count| count > 0), "{count:?}");
    process.terminate();
    assert_eq!(process.exited().await.code(), Some(0));
    drop(lines);
}

#[tokio::test]
async fn the_last_lines_are_written_before_the_process_ends() {
    let mut process = Piped::serve(&["--log-level", "debug"]);
    let client = process.client().await;
    client.try_lock("r").await.unwrap();
    drop(client);
    process.terminate();
    assert_eq!(process.exited().await.code(), Some(0));
    let mut log = String::new();
    process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("draining") && log.ends_with('\n'), "{log}");
}
