//! etcd beside the mutex of its own Go client, on the same server in turn.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use leasehold_testkit::etcd::EtcdServer;
use serde::Deserialize;
use tokio::process::Command;

use crate::{
    Options,
    client::Client,
    cycles, handover,
    process::cpu_seconds,
    report::{median, median_of, row, table},
    servers::Component,
    stores::version,
};

const WAITERS: [usize; 3] = [1, 10, 100];
const PEER: &str = "benches/peers/etcd";
/// Raft entries that etcd has applied.
const RAFT_WRITES: &str = "etcd_server_proposals_applied_total";
/// gRPC messages that etcd has received.
const REQUESTS: &str = "grpc_server_msg_received_total";

/// One JSON line of the peer.
#[derive(Deserialize)]
struct Peer {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// leasehold on etcd beside Go's `concurrency.Mutex`.
pub(crate) async fn compare(options: &Options) -> Result<()> {
    let peer = build_peer(options).await?;
    for binary in &options.etcd {
        let etcd = EtcdServer::launch(binary, &[]).await?;
        let leasehold = Component::leasehold(&options.leasehold, "etcd").await?;
        let properties = [("endpoints", etcd.address())];
        cycles_table(options, &peer, &etcd, &leasehold, &properties).await?;
        if !options.only_cycles {
            handover_table(options, &peer, &etcd, &leasehold, &properties).await?;
        }
    }
    Ok(())
}

async fn cycles_table(
    options: &Options,
    peer: &Path,
    etcd: &EtcdServer,
    leasehold: &Component,
    properties: &[(&str, &str)],
) -> Result<()> {
    table(
        &format!("etcd {}: lock and unlock, cycles/s (medians)", version(etcd).await?),
        &[
            "callers",
            "leasehold, through the socket",
            "acquire p50/p99 ms",
            "bare transactions, through a socket",
            "Go mutex, one session",
            "Go mutex, a session a lock",
            "leasehold/bare",
            "leasehold/one session",
            "leasehold/a session a lock",
            "raft writes a cycle",
            "CPU µs a cycle: client/leasehold/etcd",
        ],
    );
    let bare = Component::bare(&["--etcd", etcd.address()]).await?;
    for &callers in &options.callers {
        let mut simple = Vec::new();
        let (mut ours, mut shared, mut own) = (Vec::new(), Vec::new(), Vec::new());
        let mut costs = Vec::new();
        for _ in 0..options.rounds {
            let time = options.duration();
            let before = Cost::so_far(etcd, leasehold).await?;
            let run = cycles::through(&leasehold.socket, properties, callers, time).await?;
            costs.push(Cost::so_far(etcd, leasehold).await?.since(&before, run.cycles()));
            ours.push(run);
            simple.push(cycles::through(&bare.socket, &[], callers, time).await?.rate);
            shared.push(run_peer(peer, etcd, "shared", callers, time).await?.rate);
            own.push(run_peer(peer, etcd, "own", callers, time).await?.rate);
        }
        let ratio = |theirs: &[f64]| {
            median(ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate / theirs).collect())
        };
        row(&[
            callers.to_string(),
            format!("{:.0}", median_of(&ours, |f| f.rate)),
            format!(
                "{:.2}/{:.2}",
                median_of(&ours, |f| f.ms(0.5)),
                median_of(&ours, |f| f.ms(0.99))
            ),
            format!("{:.0}", median(simple.clone())),
            format!("{:.0}", median(shared.clone())),
            format!("{:.0}", median(own.clone())),
            format!("{:.2}", ratio(&simple)),
            format!("{:.2}", ratio(&shared)),
            format!("{:.1}", ratio(&own)),
            format!("{:.2}", median_of(&costs, |cost| cost.raft_writes)),
            format!(
                "{:.0}/{:.0}/{:.0}",
                median_of(&costs, |cost| cost.cpu_us[0]),
                median_of(&costs, |cost| cost.cpu_us[1]),
                median_of(&costs, |cost| cost.cpu_us[2])
            ),
        ]);
    }
    Ok(())
}

/// The cost of cycles.
struct Cost {
    raft_writes: f64,
    /// Of the client, leasehold and etcd.
    cpu_us: [f64; 3],
}

impl Cost {
    async fn so_far(etcd: &EtcdServer, leasehold: &Component) -> Result<Self> {
        let cpu_us = |pid| cpu_seconds(pid).map(|seconds| seconds * 1e6);
        Ok(Self {
            raft_writes: etcd.metric(RAFT_WRITES).await,
            cpu_us: [
                cpu_us(std::process::id())?,
                cpu_us(leasehold.pid()?)?,
                cpu_us(etcd.id().context("etcd has ended")?)?,
            ],
        })
    }

    /// The cost of each of `cycles` since `before`.
    fn since(&self, before: &Self, cycles: f64) -> Self {
        Self {
            raft_writes: (self.raft_writes - before.raft_writes) / cycles,
            cpu_us: [0, 1, 2].map(|of| (self.cpu_us[of] - before.cpu_us[of]) / cycles),
        }
    }
}

async fn handover_table(
    options: &Options,
    peer: &Path,
    etcd: &EtcdServer,
    leasehold: &Component,
    properties: &[(&str, &str)],
) -> Result<()> {
    table(
        &format!(
            "etcd {}: hand-over of one key, each holds 1 ms (medians)",
            version(etcd).await?
        ),
        &[
            "waiters",
            "leasehold grants/s",
            "hand-over p50/p99 ms",
            "raft writes a grant",
            "Go mutex grants/s",
            "hand-over p50/p99 ms",
        ],
    );
    let client = Client::connect(&leasehold.socket, properties).await?;
    for waiters in WAITERS {
        let (mut ours, mut theirs, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let time = options.duration();
            let before = etcd.metric(RAFT_WRITES).await;
            let run = handover::measure(&client, waiters, time).await?;
            writes.push((etcd.metric(RAFT_WRITES).await - before) / run.grants);
            ours.push(run.figures);
            theirs.push(run_peer(peer, etcd, "handover", waiters, time).await?);
        }
        let middle =
            |figure: fn(&Peer) -> f64| median(theirs.iter().map(figure).collect::<Vec<_>>());
        row(&[
            waiters.to_string(),
            format!("{:.0}", median_of(&ours, |f| f.rate)),
            format!(
                "{:.2}/{:.2}",
                median_of(&ours, |f| f.ms(0.5)),
                median_of(&ours, |f| f.ms(0.99))
            ),
            format!("{:.1}", median(writes)),
            format!("{:.0}", middle(|peer| peer.rate)),
            format!("{:.2}/{:.2}", middle(|peer| peer.p50_ms), middle(|peer| peer.p99_ms)),
        ]);
    }
    idle(&client, etcd, options.duration()).await
}

/// The cost of a hundred idle waiters.
async fn idle(client: &Client, etcd: &EtcdServer, duration: Duration) -> Result<()> {
    let granted = client.clone().try_lock("bench-idle").await?;
    let waits = handover::queue(client, "bench-idle", 100).await;
    let before = (etcd.metric(RAFT_WRITES).await, etcd.metric(REQUESTS).await);
    tokio::time::sleep(duration).await;
    let after = (etcd.metric(RAFT_WRITES).await, etcd.metric(REQUESTS).await);
    println!(
        "\n100 idle waiters: {:.1} raft writes/s, {:.1} requests/s",
        (after.0 - before.0) / duration.as_secs_f64(),
        (after.1 - before.1) / duration.as_secs_f64(),
    );
    drop(waits);
    client.clone().unlock("bench-idle", granted.lock_id).await
}

async fn build_peer(options: &Options) -> Result<PathBuf> {
    let peer = std::env::current_dir()?.join("target/bench/etcd-peer");
    println!("\nbuilding the Go peer (the first time takes a minute) ...");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&peer)
        .arg(".")
        .current_dir(PEER)
        .status()
        .await
        .context(
            "the comparison needs Go on the PATH, and to run from the repository's root",
        )?;
    ensure!(status.success(), "the Go peer did not build");
    ensure!(!options.etcd.is_empty(), "name at least one etcd with --etcd");
    Ok(peer)
}

async fn run_peer(
    peer: &Path,
    etcd: &EtcdServer,
    mode: &str,
    callers: usize,
    duration: Duration,
) -> Result<Peer> {
    let output = Command::new(peer)
        .args(["-endpoint", etcd.address(), "-mode", mode])
        .args(["-callers", &callers.to_string(), "-seconds", &duration.as_secs().to_string()])
        .stderr(Stdio::inherit())
        .output()
        .await?;
    ensure!(output.status.success(), "the Go peer failed");
    serde_json::from_slice(&output.stdout).context("the Go peer's line")
}
