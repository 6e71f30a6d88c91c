//! What an outage does to many waits, and to those of one member's clients.

use std::time::Duration;

use etcd_client::{Txn, TxnOp};
use futures_util::future::join_all;
use leasehold_lock::{BackendError, Grant, Settings};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    Case, cases,
    etcd::{EtcdCluster, EtcdServer, Version},
    fixture::*,
    proxy::{Conduct, Flow, Proxy},
};

/// How many resources are waited for, unless `LEASEHOLD_RESOURCES` says otherwise.
fn many() -> usize {
    std::env::var("LEASEHOLD_RESOURCES").ok().map_or(300, |count| count.parse().unwrap())
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        waits_of_one_process_share_a_watch_stream,
        a_short_pause_of_etcd_costs_no_connection,
        waits_on_many_resources_outlive_a_pause_of_etcd,
        waits_on_many_resources_outlive_a_lost_connection_in_their_places,
        waits_keep_their_places_when_a_follower_stands_still,
        a_mass_release_takes_longer_than_a_step_and_ends_no_wait,
        waits_that_are_given_up_before_they_enter_cost_no_write,
        lost_answers_to_many_entries_cost_one_fence_and_not_one_each,
    ];
    cases.push(Case {
        name: "memory_of_a_watched_resource",
        run: |version| Box::pin(memory_of_a_watched_resource(version)),
        measures: true,
    });
    cases
}

type Waits = Vec<JoinHandle<Result<Grant, BackendError>>>;

/// Resources that somebody holds, written in a few transactions.
async fn hold(server: &EtcdServer, count: usize) {
    let mut client = server.client().await;
    let keys: Vec<String> = (0..count).map(|n| format!("/t/r/{n}/h")).collect();
    for part in keys.chunks(100) {
        let puts: Vec<TxnOp> =
            part.iter().map(|key| TxnOp::put(key.clone(), "somebody", None)).collect();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
}

/// The entries of all queues.
async fn entries(server: &EtcdServer) -> Vec<String> {
    let all = keys(server, "/t/r/").await;
    all.into_iter().filter(|key| key.contains("/q/")).collect()
}

/// A wait for each of `count` held resources, a hundred at a time, as each begins
/// with a try; returns when all are in their queues.
async fn wait_for_each(server: &EtcdServer, backend: &Shared, count: usize) -> Waits {
    hold(server, count).await;
    let mut waits = Waits::new();
    while waits.len() < count {
        let more = (waits.len()..count).take(100);
        waits.extend(more.map(|n| lock(backend, &n.to_string())));
        let give_up = Instant::now() + 3 * SOON;
        loop {
            if let Some(ended) = waits.iter_mut().find(|wait| wait.is_finished()) {
                panic!("a wait ended: {:?}", ended.await);
            }
            let waiting = entries(server).await.len();
            if waiting == waits.len() {
                break;
            }
            assert!(Instant::now() < give_up, "{waiting} of {} wait", waits.len());
            sleep(Duration::from_millis(50)).await;
        }
    }
    waits
}

/// No wait ends for longer than one outlives an outage.
async fn none_ends(waits: &mut Waits) {
    let until = Instant::now() + Settings::default().operation_timeout + Duration::from_secs(2);
    while Instant::now() < until {
        let ended = waits.iter().filter(|wait| wait.is_finished()).count();
        if ended > 0 {
            let first = waits.iter_mut().find(|wait| wait.is_finished()).unwrap();
            panic!("{ended} of the waits ended, the first so: {:?}", first.await);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Some of the resources are let go, and those who wait for them are served.
async fn some_are_served(server: &EtcdServer, waits: Waits, count: usize) {
    let mut client = server.client().await;
    let deletes: Vec<TxnOp> =
        (0..count).map(|n| TxnOp::delete(format!("/t/r/{n}/h"), None)).collect();
    for part in deletes.chunks(100) {
        client.txn(Txn::new().and_then(part)).await.unwrap();
    }
    let mut waits = waits.into_iter();
    for served in waits.by_ref().take(count) {
        granted_within(3 * SOON, served).await;
    }
    waits.for_each(|wait| wait.abort());
}

/// Trap: etcd 39
async fn waits_of_one_process_share_a_watch_stream(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let waits = wait_for_each(&server, &backend, 50).await;
    let streams = server.metric("etcd_debugging_mvcc_watch_stream_total").await;
    let watches = server.metric("etcd_debugging_mvcc_watcher_total").await;
    assert!(watches >= 50.0, "{watches} watches");
    assert!(streams <= 3.0, "{streams} streams for {watches} watches");
    some_are_served(&server, waits, 50).await;
    eventually("the watches end when nobody waits", || async {
        server.metric("etcd_debugging_mvcc_watcher_total").await < 3.0
    })
    .await;
}

/// Trap: etcd 39
async fn a_short_pause_of_etcd_costs_no_connection(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let mut waits = wait_for_each(&server, &backend, 20).await;
    // Leases that were just used are kept fresh for a moment.
    sleep(Duration::from_secs(3)).await;
    let connections = proxy.admitted();
    let paused = Instant::now();
    server.pause();
    // A request that is under way for as long as the pause.
    waits.push(lock(&backend, "one-more"));
    sleep(Duration::from_millis(2_300)).await;
    server.resume();
    let free = waits.pop().unwrap();
    soon(free).await;
    // A machine that stands still for longer costs one.
    let lost = u64::from(paused.elapsed() >= Duration::from_secs(3));
    assert!(proxy.admitted() <= connections + lost);
    some_are_served(&server, waits, 20).await;
}

/// Trap: etcd 39
async fn waits_on_many_resources_outlive_a_pause_of_etcd(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut waits = wait_for_each(&server, &backend, many()).await;
    server.pause();
    sleep(Duration::from_millis(2_300)).await;
    server.resume();
    none_ends(&mut waits).await;
    some_are_served(&server, waits, 50).await;
}

/// Trap: etcd 39
async fn waits_on_many_resources_outlive_a_lost_connection_in_their_places(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    let mut waits = wait_for_each(&server, &backend, many()).await;
    let before = entries(&server).await;
    proxy.refuse(true);
    proxy.cut();
    sleep(Duration::from_millis(300)).await;
    proxy.refuse(false);
    none_ends(&mut waits).await;
    assert!(entries(&server).await == before, "places were lost");
    some_are_served(&server, waits, 50).await;
}

/// Trap: etcd 40
async fn waits_keep_their_places_when_a_follower_stands_still(version: Version) {
    let cluster = EtcdCluster::start(version, 3, false).await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    let mut proxies = Vec::new();
    for (n, member) in cluster.members.iter().enumerate() {
        let proxy = Proxy::start(&member.url).await;
        proxy.refuse(n != follower);
        proxies.push(proxy);
    }
    let endpoints: Vec<&str> = proxies.iter().map(Proxy::address).collect();
    let endpoints = endpoints.join(",");
    let server = &cluster.members[leader];
    let other = open(&server.url).await;
    let mut held = try_lock(&other, "r").await.unwrap();
    let (mut clients, mut waits) = (Vec::new(), Vec::new());
    for n in 0..4 {
        // Connected to the follower, with all three to choose from later.
        let client = open(&endpoints).await;
        waits.push(lock(&client, "r"));
        clients.push(client);
        queued(server, "r", n + 1).await;
        // Their keep-alives are not sent at the same time.
        sleep(Duration::from_millis(270)).await;
    }
    // Of a process that notices nothing, behind the others.
    waits.push(lock(&other, "r"));
    queued(server, "r", 5).await;
    proxies.iter().for_each(|proxy| proxy.refuse(false));
    let before = entries(server).await;
    cluster.members[follower].pause();
    // Longer than a session lives that nobody keeps alive.
    let (paused, mut slowest) = (Instant::now(), Duration::ZERO);
    while paused.elapsed() < Duration::from_secs(6) {
        let asked = Instant::now();
        entries(server).await;
        sleep(Duration::from_millis(50)).await;
        slowest = slowest.max(asked.elapsed());
    }
    let after = entries(server).await;
    cluster.members[follower].resume();
    if after != before && slowest > Duration::from_millis(500) {
        eprintln!(
            "ignored: the machine stood still for {slowest:?}, in which a session may end"
        );
        return;
    }
    assert_eq!(after, before, "places were lost");
    for wait in waits {
        unlock(&other, "r", &held).await.unwrap();
        let next = soon(wait).await;
        assert!(token(&next) > token(&held));
        held = next;
    }
}

/// Each waiter that is served needs a new lease, and few leases are granted at a time.
async fn a_mass_release_takes_longer_than_a_step_and_ends_no_wait(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open_with(&[
        ("endpoints", proxy.address()),
        ("keyPrefixPath", "/t"),
        ("operationTimeout", "3s"),
    ])
    .await;
    let count = 400;
    let waits = wait_for_each(&server, &backend, count).await;
    proxy.delay_replies(Duration::from_millis(90));
    some_are_served(&server, waits, count).await;
}

/// Each of them was put and removed again. When etcd was slow, the writes of callers who
/// had left kept those who came after them from entering in time.
async fn waits_that_are_given_up_before_they_enter_cost_no_write(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let backend = open(proxy.address()).await;
    try_lock(&backend, "r").await.unwrap();
    let other = try_lock(&backend, "other").await.unwrap();
    let first = lock(&backend, "r");
    queued(&server, "r", 1).await;
    // One write is under way all the time, and what comes meanwhile waits.
    proxy.set(Conduct { replies: Flow::Stall, ..Conduct::default() });
    let before = server.revision().await;
    let under_way = {
        let backend = backend.clone();
        tokio::spawn(async move { unlock(&backend, "other", &other).await })
    };
    eventually("it is under way", async || server.revision().await > before).await;
    let given_up: Vec<_> = (0..10).map(|_| lock(&backend, "r")).collect();
    sleep(Duration::from_millis(100)).await;
    given_up.iter().for_each(JoinHandle::abort);
    proxy.heal();
    under_way.await.unwrap().unwrap();
    try_lock(&backend, "last").await.unwrap();
    assert_eq!(server.revision().await, before + 2, "of the unlock and of the last try");
    first.abort();
}

/// What one more waited-for resource costs etcd; to be read, not asserted.
async fn memory_of_a_watched_resource(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let first = wait_for_each(&server, &backend, 100).await;
    first.iter().for_each(JoinHandle::abort);
    sleep(Duration::from_secs(2)).await;
    let before = server.memory_bytes();
    let waits = wait_for_each(&server, &backend, many()).await;
    sleep(Duration::from_secs(5)).await;
    let grown = server.memory_bytes().saturating_sub(before);
    eprintln!(
        "{}: {} waited-for resources: {} MiB, {} bytes each",
        version.name(),
        many(),
        grown >> 20,
        grown / many() as u64
    );
    waits.iter().for_each(JoinHandle::abort);
}

/// Each fence makes the entries that wait to be sent start again. With a fence for each lost
/// answer, thousands of waiters could not enter for 16 s, and newcomers were granted their
/// resources.
/// Trap: etcd 39
async fn lost_answers_to_many_entries_cost_one_fence_and_not_one_each(version: Version) {
    const WAITS: usize = 100;
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let held = try_lock(&other, "r").await.unwrap();
    let other_held = try_lock(&backend, "other").await.unwrap();
    let mut waits = vec![lock(&backend, "r")];
    queued(&server, "r", 1).await;
    // One write is under way, so that the entries that come meanwhile are one batch.
    proxy.set(Conduct { requests: Flow::Stall, ..Conduct::default() });
    let under_way = {
        let backend = backend.clone();
        tokio::spawn(async move { unlock(&backend, "other", &other_held).await })
    };
    sleep(Duration::from_millis(100)).await;
    waits.extend((0..WAITS).map(|_| lock(&backend, "r")));
    sleep(Duration::from_millis(400)).await;
    proxy.lose_reply_to("/q/");
    proxy.heal();
    under_way.await.unwrap().unwrap();
    eventually("all are entered", async || entries(&server).await.len() > WAITS).await;
    // A waiter takes its turn once it knows that it is entered.
    unlock(&other, "r", &held).await.unwrap();
    join_all(waits.into_iter().map(async |wait| {
        let grant = granted_within(6 * SOON, wait).await;
        unlock(&backend, "r", &grant).await.unwrap();
    }))
    .await;
    let prefix = etcd_client::GetOptions::new().with_prefix();
    let found = server.client().await.get("/t/s/", Some(prefix)).await.unwrap();
    let session = found.kvs().iter().max_by_key(|pair| pair.version()).unwrap();
    assert!(session.version() < 10, "the session's key has {} versions", session.version());
}
