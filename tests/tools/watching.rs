//! `watch`.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use leasehold_testkit::{redis::RedisServer, wait};

use crate::stage::{Stage, leasehold};

/// A running watch, which is killed when dropped.
struct Watch {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Watch {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        Self::of(stage.command(&[&["watch"], arguments].concat()))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A watch that has begun: it has printed a grant of `begun-…`.
async fn begun(stage: &Stage, arguments: &[&str]) -> Watch {
    let watch = Watch::start(stage, arguments);
    // Until the first change is printed, nobody knows whether the watch has begun.
    let mut number = 0;
    let begun = wait::eventually(Duration::from_secs(30), "the watch has begun", async || {
        number += 1;
        stage.lock(&format!("begun-{number}"), "holder").await;
        let line = watch.lines.recv_timeout(Duration::from_millis(50))?;
        assert!(line.contains(" begun-"), "{line}");
        Ok(())
    });
    begun.await.unwrap();
    watch
}

#[tokio::test]
async fn a_change_is_a_line_and_what_was_held_before_is_none() {
    let stage = Stage::start().await;
    stage.lock("before", "holder").await;
    let watch = begun(&stage, &[]).await;
    stage.lock("order-1", "invoice").await;
    // Other grants may be printed later: changes of two resources have no order.
    let of_order = || loop {
        let line = watch.next();
        assert!(!line.contains("before"), "{line}");
        if line.contains("order-1") {
            return line;
        }
    };
    let line = of_order();
    let mut words = line.split(' ');
    assert!(words.next().unwrap().ends_with('Z'), "{line}");
    assert_eq!(words.collect::<Vec<_>>(), ["order-1", "granted", "invoice"]);
    stage.run(&["force-unlock", "order-1", "--yes"]);
    let line = of_order();
    assert!(line.ends_with(" order-1 ended (forced) invoice"), "{line}");
}

#[tokio::test]
async fn a_watch_goes_on_after_an_outage_of_the_store() {
    let mut redis = RedisServer::start();
    let url = format!("redis://{}", redis.address());
    let watch = Watch::of(leasehold(&["watch", "--store", &url, "-o", "ndjson"]));
    assert!(watch.next().contains("synced"));
    redis.kill();
    redis.restart();
    while !watch.next().contains("restarted") {}
    while !watch.next().contains("synced") {}
}

#[tokio::test]
async fn ndjson_has_the_api_s_events() {
    let stage = Stage::start().await;
    let watch = Watch::start(&stage, &["-o", "ndjson"]);
    let event: serde_json::Value = serde_json::from_str(&watch.next()).unwrap();
    assert_eq!(event["type"], "synced");
}
