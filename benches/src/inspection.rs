//! The cost of inspection for callers that lock: lists of many held locks, and a watch.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use leasehold_proto::locks::{
    ListLocksRequest, LockEvent, LockScope, WatchLocksRequest,
    inspection_client::InspectionClient,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::{Streaming, transport::Channel};

use crate::{
    Options,
    client::{Client, over_socket},
    cycles,
    report::{Figures, median, median_of, row, table},
    stores::{Served, Store, each_store},
};

/// How many locks are held meanwhile.
const HELD: usize = 100_000;
/// How many callers take them.
const TAKERS: usize = 64;
/// The largest page.
const PAGE_SIZE: i32 = 1000;

/// Lock and unlock alone, beside one list after the other, and beside a watch.
pub(crate) async fn compare(options: &Options, stores: &[impl AsRef<str>]) -> Result<()> {
    table(
        &format!("Lock and unlock while {HELD} other locks are held, cycles/s (medians)"),
        &["store", "callers", "alone", "list/alone", "a list", "watch/alone"],
    );
    each_store(options, stores, async |store| on_store(options, &store).await).await
}

async fn on_store(options: &Options, store: &Store<'_>) -> Result<()> {
    let Served { leasehold, client } = store.serve(&options.leasehold).await?;
    hold(&client).await?;
    for &callers in &options.callers {
        let mut lists_s = Vec::new();
        let mut runs = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..options.rounds {
            let time = options.duration();
            runs[0].push(cycles::measure(&client, callers, time).await?);
            let lister = Lister::start(&leasehold.socket).await?;
            runs[1].push(cycles::measure(&client, callers, time).await?);
            lists_s.extend(lister.finish().await?);
            let watcher = watch(&leasehold.socket).await?;
            runs[2].push(cycles::measure(&client, callers, time).await?);
            ensure!(!watcher.is_finished(), "the watch ended");
            watcher.abort();
        }
        let [alone, list, watch] = &runs;
        let ratio = |beside: &[Figures]| {
            let pairs = beside.iter().zip(alone);
            median(pairs.map(|(beside, alone)| beside.rate / alone.rate).collect())
        };
        row(&[
            store.title.clone(),
            callers.to_string(),
            format!("{:.0}", median_of(alone, |f| f.rate)),
            format!("{:.2}", ratio(list)),
            format!("{:.1} s", median(lists_s)),
            format!("{:.2}", ratio(watch)),
        ]);
    }
    Ok(())
}

async fn hold(client: &Client) -> Result<()> {
    let mut tasks = JoinSet::new();
    for taker in 0..TAKERS {
        let mut client = client.clone();
        tasks.spawn(async move {
            for n in (taker..HELD).step_by(TAKERS) {
                client.try_lock_for(&format!("held-{n}"), 3600).await?;
            }
            anyhow::Ok(())
        });
    }
    for done in tasks.join_all().await {
        done.context("taking the locks that are listed")?;
    }
    Ok(())
}

/// Lists everything repeatedly until it is stopped.
struct Lister {
    stop: CancellationToken,
    lists: JoinHandle<Result<Vec<f64>>>,
}

impl Lister {
    async fn start(socket: &Path) -> Result<Self> {
        let mut client = InspectionClient::new(over_socket(socket).await?);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let lists = tokio::spawn(async move {
            let mut seconds = Vec::new();
            while !stopped.is_cancelled() {
                seconds.push(list(&mut client).await?);
            }
            Ok(seconds)
        });
        Ok(Self { stop, lists })
    }

    /// The seconds that each list took. The last one ends after this call.
    async fn finish(self) -> Result<Vec<f64>> {
        self.stop.cancel();
        self.lists.await?
    }
}

/// The seconds that a list of all held locks took.
async fn list(client: &mut InspectionClient<Channel>) -> Result<f64> {
    let begun = Instant::now();
    let (mut found, mut page_token) = (0, String::new());
    loop {
        let page = client
            .list_locks(ListLocksRequest {
                scope: Some(LockScope { prefix: "held-".into(), ..Default::default() }),
                page_size: PAGE_SIZE,
                page_token,
                ..Default::default()
            })
            .await?
            .into_inner();
        found += page.locks.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    ensure!(found >= HELD, "{found} of {HELD} held locks were listed");
    Ok(begun.elapsed().as_secs_f64())
}

/// Watches everything. Returns once all states have been reported.
async fn watch(socket: &Path) -> Result<JoinHandle<Result<()>>> {
    let mut client = InspectionClient::new(over_socket(socket).await?);
    let scope = Some(LockScope::default());
    let request = WatchLocksRequest { scope, ..Default::default() };
    let mut events = client.watch_locks(request).await?.into_inner();
    while !next(&mut events).await? {}
    Ok(tokio::spawn(async move {
        loop {
            next(&mut events).await?;
        }
    }))
}

/// Reads one event. Returns whether all states have been reported.
async fn next(events: &mut Streaming<LockEvent>) -> Result<bool> {
    Ok(events.message().await?.context("the watch ended")?.synced)
}
