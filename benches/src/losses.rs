//! Many locks held through the sidecar: the cost of their renewal, and when the
//! app is notified of losses.
//!
//! The app is this program: the sidecar calls it back. A lock's safe deadline is
//! computed from outside: the remaining TTL of its key at its deletion shows
//! when it was last renewed.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use leasehold_proto::locks::{
    LockLost, LockRequest,
    lock_events_server::{LockEvents, LockEventsServer},
    locks_client::LocksClient,
};
use leasehold_testkit::redis::RedisServer;
use tokio::{
    net::TcpListener,
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use crate::{
    Options,
    process::{cpu_seconds, rss_mib},
    report::{histogram, row, table},
    servers::{APP_ID, STORE, Sidecar},
};

const LOCKS: usize = 100_000;
const LOST: usize = 1_000;
const CALLERS: usize = 64;
const TTL: Duration = Duration::from_secs(30);
/// How long renewing is watched: twice the TTL.
const RENEWING: Duration = Duration::from_secs(60);
/// The margin of the safe deadline: a twentieth of the TTL and 20 ms.
const DRIFT: Duration = Duration::from_millis(1500 + 20);

/// The app: records notices with their times.
struct App(Sender<(Instant, LockLost)>);

#[tonic::async_trait]
impl LockEvents for App {
    async fn on_lock_lost(&self, request: Request<LockLost>) -> Result<Response<()>, Status> {
        let notice = (Instant::now(), request.into_inner());
        self.0.send(notice).await.map_err(|_| Status::unavailable("the run has ended"))?;
        Ok(Response::new(()))
    }
}

/// Holds the locks, watches their renewal, deletes some, and waits for the notices.
pub(crate) async fn redis(options: &Options) -> Result<()> {
    table("Sidecar on Redis: many held locks", &["what", "figure"]);
    let (sender, mut notices) = channel(LOCKS);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let app_port = listener.local_addr()?.port().to_string();
    let app = tonic::transport::Server::builder()
        .add_service(LockEventsServer::new(App(sender)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let app = tokio::spawn(app);
    let redis = RedisServer::start();
    let flags = ["--app-port", &app_port, "--app-protocol", "grpc"];
    let sidecar = Sidecar::on_ports(&options.leasehold, &redis, &flags).await?;
    let pid = sidecar.pid()?;

    let took = hold(&sidecar).await?;
    row(&[
        format!("taking {LOCKS} locks, TTL {TTL:?}"),
        format!("{:.1} s", took.as_secs_f64()),
    ]);

    let (before, started) = (cpu_seconds(pid)?, Instant::now());
    let mut rss_peak = 0.0_f64;
    while started.elapsed() < RENEWING {
        rss_peak = rss_peak.max(rss_mib(pid)?);
        sleep(Duration::from_millis(500)).await;
    }
    let share = (cpu_seconds(pid)? - before) / started.elapsed().as_secs_f64();
    row(&[
        format!("renewing for {RENEWING:?}: share of a core"),
        format!("{:.0} %", share * 100.0),
    ]);
    row(&["RSS while renewing, the most seen".into(), format!("{rss_peak:.0} MiB")]);
    let lost_before = notices.len();
    row(&["lost without cause".into(), lost_before.to_string()]);

    let deadlines = delete(&redis).await?;
    report(&mut notices, deadlines).await?;
    app.abort();
    Ok(())
}

/// Takes all locks; they are renewed from then on.
async fn hold(sidecar: &Sidecar) -> Result<Duration> {
    let client = LocksClient::new(sidecar.channel().await?);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = client.clone();
        tasks.spawn(async move {
            for n in (caller..LOCKS).step_by(CALLERS) {
                let request = LockRequest {
                    store_name: STORE.into(),
                    resource_id: name(n),
                    immediate: true,
                    ttl: Some(TTL.try_into()?),
                    ..Default::default()
                };
                client.lock(request).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

/// Deletes locks at once. Returns when, and the safe deadline of each.
async fn delete(redis: &RedisServer) -> Result<(Instant, HashMap<String, Instant>)> {
    let mut server =
        redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    let names: Vec<String> = (0..LOCKS).step_by(LOCKS / LOST).map(name).collect();
    let mut all = redis::pipe();
    all.atomic();
    for name in &names {
        all.cmd("PTTL").arg(key(name));
    }
    for name in &names {
        all.cmd("DEL").arg(key(name));
    }
    let deleted = Instant::now();
    let answers: Vec<i64> = all.query_async(&mut server).await?;
    let (left_ms, gone) = answers.split_at(names.len());
    ensure!(gone.iter().all(|gone| *gone == 1), "a lock was not there to be deleted");
    let mut deadlines = HashMap::new();
    for (name, left_ms) in names.into_iter().zip(left_ms) {
        let left = Duration::from_millis((*left_ms).try_into()?);
        let deadline = (deleted + left).checked_sub(DRIFT).context("a deadline")?;
        deadlines.insert(name, deadline);
    }
    Ok((deleted, deadlines))
}

/// Waits for all notices, and prints when they arrived.
async fn report(
    notices: &mut Receiver<(Instant, LockLost)>,
    (deleted, mut deadlines): (Instant, HashMap<String, Instant>),
) -> Result<()> {
    let total = deadlines.len();
    let give_up = deleted + 2 * TTL;
    let (mut after_us, mut spare_us) = (histogram(), histogram());
    let mut late = 0;
    let mut causes = BTreeMap::<String, usize>::new();
    while !deadlines.is_empty() {
        let Ok(Some((at, lost))) = timeout_at(give_up, notices.recv()).await else { break };
        let Some(deadline) = deadlines.remove(&lost.resource_id) else { continue };
        *causes.entry(lost.cause).or_default() += 1;
        after_us.saturating_record(at.duration_since(deleted).as_micros().try_into()?);
        match deadline.checked_duration_since(at) {
            Some(spare) => spare_us.saturating_record(spare.as_micros().try_into()?),
            None => late += 1,
        }
    }
    let seconds = |us: u64| format!("{:.2}", Duration::from_micros(us).as_secs_f64());
    let notified = total - deadlines.len();
    row(&[format!("notified of, of {total} deleted at once"), notified.to_string()]);
    row(&["causes".into(), format!("{causes:?}")]);
    row(&[
        "notified after their deletion, p50/p99/most s".into(),
        [0.5, 0.99, 1.0].map(|q| seconds(after_us.value_at_quantile(q))).join("/"),
    ]);
    row(&[
        "notified before the safe deadline, p50/p99/least s".into(),
        [0.5, 0.01, 0.0].map(|q| seconds(spare_us.value_at_quantile(q))).join("/"),
    ]);
    row(&["notified after the safe deadline".into(), late.to_string()]);
    Ok(())
}

fn name(n: usize) -> String {
    format!("held-{n}")
}

/// The store's name of a resource.
fn key(name: &str) -> String {
    format!("lock||{APP_ID}||{name}")
}
