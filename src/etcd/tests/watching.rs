//! A watch of the store: its events, also after losses.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_lock::{AcquireRequest, Attempt, Mode, Settings, Store, inspect::EndCause};
use leasehold_testkit::proxy::Proxy;
use tokio::time::{Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
    watcher::Watcher,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_watch_folds_into_what_is_listed,
        changes_while_a_watch_begins_are_reported,
        changes_while_the_connection_is_cut_are_reported_after_a_restart,
        a_compaction_while_a_watch_is_cut_off_loses_no_change,
        a_compaction_does_not_disturb_a_watch,
        a_watch_outlives_a_restart_of_etcd,
        a_restored_data_set_is_reported_anew,
        the_readers_of_many_are_counted,
        neither_a_renewal_nor_a_replay_is_a_change,
        keys_of_others_are_no_change,
        expiries_are_reported,
        all_watchers_share_a_watch_that_ends_with_the_last,
        watching_writes_nothing,
    ]
}

/// Makes random changes by all these processes at the same time.
async fn change(backends: &[&Shared], steps: usize) {
    let changes = backends.iter().map(|backend| async move {
        let mut held = Vec::new();
        for _ in 0..steps {
            let name = format!("r{}", fastrand::u8(..6));
            match fastrand::u8(..10) {
                0..=2 => held.extend(try_lock(backend, &name).await.ok().map(|it| (name, it))),
                3..=6 => held.extend(try_read(backend, &name).await.ok().map(|it| (name, it))),
                7 => drop(force(backend, &name).await),
                _ if held.is_empty() => {}
                _ => {
                    let (name, grant) = held.swap_remove(fastrand::usize(..held.len()));
                    let _ = unlock(backend, &name, &grant).await;
                }
            }
        }
    });
    join_all(changes).await;
}

async fn a_watch_folds_into_what_is_listed(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut watcher = Watcher::start(&b).await;
    for _ in 0..5 {
        change(&[&a, &b], 40).await;
        watcher.agrees_with(&a).await;
    }
    assert_eq!(watcher.restarts, 0);
}

/// Trap: etcd 6
async fn changes_while_a_watch_begins_are_reported(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (a, late) = (open(&server.url).await, open(proxy.address()).await);
    change(&[&a], 20).await;
    let store = Store::new(late, Settings::default());
    // The list is answered, and only later the watch asked for.
    proxy.delay_replies(Duration::from_millis(500));
    let mut watcher = Watcher::of(&store);
    let beginning = watcher.until("all states are reported", |watcher| watcher.is_synced);
    let changing = async {
        for n in 0.. {
            try_lock(&a, &format!("while-it-begins-{n}")).await.unwrap();
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = beginning => {}
        () = changing => {}
    }
    proxy.heal();
    watcher.agrees_with(&a).await;
    assert_eq!(watcher.restarts, 0);
}

/// Trap: etcd 6
async fn changes_while_the_connection_is_cut_are_reported_after_a_restart(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (a, cut) = (open(&server.url).await, open(proxy.address()).await);
    let mut watcher = Watcher::start(&cut).await;
    for round in 1..=3 {
        change(&[&a], 20).await;
        proxy.refuse(true);
        proxy.cut();
        change(&[&a], 20).await;
        proxy.heal();
        watcher.until("it is restarted", |watcher| watcher.restarts >= round).await;
        watcher.until("all states are reported", |watcher| watcher.is_synced).await;
        watcher.agrees_with(&a).await;
    }
}

/// Trap: etcd 6
async fn a_compaction_while_a_watch_is_cut_off_loses_no_change(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (a, cut) = (open(&server.url).await, open(proxy.address()).await);
    let freed = try_lock(&a, "freed").await.unwrap();
    let mut watcher = Watcher::start(&cut).await;
    proxy.refuse(true);
    proxy.cut();
    unlock(&a, "freed", &freed).await.unwrap();
    change(&[&a], 20).await;
    compact(&server).await;
    proxy.heal();
    watcher.until("it is restarted", |watcher| watcher.restarts > 0).await;
    watcher.until("all states are reported", |watcher| watcher.is_synced).await;
    watcher.agrees_with(&a).await;
}

async fn a_compaction_does_not_disturb_a_watch(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut watcher = Watcher::start(&backend).await;
    for _ in 0..3 {
        change(&[&backend], 20).await;
        compact(&server).await;
    }
    watcher.agrees_with(&backend).await;
    assert_eq!(watcher.restarts, 0);
}

async fn compact(server: &EtcdServer) {
    let options = etcd_client::CompactionOptions::new().with_physical();
    let revision = server.revision().await;
    server.client().await.compact(revision, Some(options)).await.unwrap();
}

async fn a_watch_outlives_a_restart_of_etcd(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    try_lock(&backend, "before").await.unwrap();
    let mut watcher = Watcher::start(&backend).await;
    server.restart();
    server.ready().await;
    watcher.until("it is restarted", |watcher| watcher.restarts > 0).await;
    watcher.until("all states are reported", |watcher| watcher.is_synced).await;
    assert!(watcher.table.contains_key("before"));
    let give_up = Instant::now() + SOON;
    while try_lock(&backend, "after").await.is_err() {
        assert!(Instant::now() < give_up, "no lock is granted");
    }
    watcher.until("a change is reported", |it| it.table.contains_key("after")).await;
}

async fn a_restored_data_set_is_reported_anew(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    try_lock(&backend, "saved").await.unwrap();
    server.back_up();
    server.restart();
    server.ready().await;
    let (backend, writer) = (open(&server.url).await, open(&server.url).await);
    let later: Vec<_> = (0..20).map(|n| format!("later{n}")).collect();
    lock_all(&writer, &later, TTL).await;
    let mut watcher = Watcher::start(&backend).await;
    assert_eq!(watcher.table.len(), 21);
    server.restore();
    server.restart();
    server.ready().await;
    watcher.until("it is restarted", |watcher| watcher.restarts > 0).await;
    watcher.until("all states are reported", |watcher| watcher.is_synced).await;
    assert_eq!(watcher.table.keys().collect::<Vec<_>>(), ["saved"]);
}

async fn the_readers_of_many_are_counted(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let total = |watcher: &Watcher| {
        let lock = watcher.table.get("r");
        lock.map_or((0, 0), |lock| (lock.grants_total, lock.grants.len()))
    };
    let before = read_many(&a, "r", 150).await;
    let mut watcher = Watcher::start(&b).await;
    assert_eq!(total(&watcher), (150, 100));
    read_many(&b, "r", 150).await;
    watcher.until("all are counted", |watcher| total(watcher) == (300, 100)).await;
    for grant in &before {
        unlock(&a, "r", grant).await.unwrap();
    }
    watcher.until("those that left are not", |watcher| total(watcher).0 == 150).await;
    watcher.agrees_with(&a).await;
    force(&a, "r").await.unwrap();
    watcher.until("nobody is left", |watcher| total(watcher) == (0, 0)).await;
}

async fn neither_a_renewal_nor_a_replay_is_a_change(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = a.try_lock(&repeatable("r", "secret"), until()).await.unwrap();
    let mut watcher = Watcher::start(&b).await;
    watcher.changed.clear();
    let written = server.revision().await;
    for (backend, ttl) in [(&a, TTL), (&a, 2 * TTL), (&b, TTL)] {
        renew(backend, "r", &grant.lock_id, ttl).await.unwrap();
    }
    let again = b.try_lock(&repeatable("r", "secret"), until()).await.unwrap();
    assert!(!again.created && server.revision().await > written, "the key was rewritten");
    try_lock(&a, "next").await.unwrap();
    watcher.until("the next change", |watcher| watcher.table.contains_key("next")).await;
    assert_eq!(watcher.changed, ["next"]);
}

async fn keys_of_others_are_no_change(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let mut watcher = Watcher::start(&backend).await;
    let mut client = server.client().await;
    for key in ["/t/r/r/h", "/t/r/r/h/somebody", "/t/r/r/q/x", "/t/x", "/t/r/%/h", "/t/r/h"] {
        client.put(key, "hello", None).await.unwrap();
        client.delete(key, None).await.unwrap();
    }
    try_lock(&backend, "next").await.unwrap();
    watcher.until("the next change", |watcher| watcher.table.contains_key("next")).await;
    assert_eq!(watcher.changed, ["next"]);
}

async fn expiries_are_reported(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut watcher = Watcher::start(&b).await;
    let ttl = Duration::from_secs(2);
    lock_all(&a, &names(10), ttl).await;
    let shared = Attempt { mode: Mode::Shared, ..attempt("shared", ttl) };
    a.try_lock(&shared, until()).await.unwrap();
    watcher.until("they have expired", |watcher| watcher.ended.len() == 11).await;
    // The event of a deletion is the same.
    assert!(watcher.ended.values().all(|cause| *cause == EndCause::Unknown));
}

async fn all_watchers_share_a_watch_that_ends_with_the_last(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let watches = || server.metric("etcd_debugging_mvcc_watcher_total");
    let before = watches().await;
    let store = Store::new(backend, Settings::default());
    let (mut one, mut other) = (Watcher::of(&store), Watcher::of(&store));
    one.until("all states are reported", |watcher| watcher.is_synced).await;
    other.until("all states are reported", |watcher| watcher.is_synced).await;
    assert!(watches().await - before < 1.5, "each has its own");
    drop(one);
    store_changes(&mut other, &store).await;
    assert!(watches().await - before > 0.5, "the other one still watches");
    drop(other);
    let ended = async || watches().await - before < 0.5;
    eventually("the watch of etcd ends", ended).await;
}

/// Fails unless a change of the store is reported.
async fn store_changes(watcher: &mut Watcher, store: &Store) {
    let request = AcquireRequest::new("change".parse().unwrap());
    store.try_lock(request).await.unwrap().receipt.accept();
    watcher.until("the change", |watcher| watcher.table.contains_key("change")).await;
}

async fn watching_writes_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = try_lock(&a, "r").await.unwrap();
    let (revision, raft) = (server.revision().await, server.raft_index().await);
    let mut watcher = Watcher::start(&b).await;
    // A write on a timer would show only as time passes, and no event says that none came.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.revision().await, revision);
    let writes = server.raft_index().await - raft;
    assert!(writes <= 2, "{writes} raft entries");
    unlock(&a, "r", &grant).await.unwrap();
    watcher.until("the release", |watcher| watcher.table.is_empty()).await;
    assert_eq!(server.revision().await, revision + 1);
}
