//! etcd's own limits: its space, the size of a request, other stores' keys.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions};
use leasehold_lock::{BackendError, Grant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_write_that_exceeds_the_space_leaves_nothing_locked,
        without_space_locks_end_and_tries_name_the_cause,
        locks_of_any_ttl_share_a_bounded_number_of_leases,
        a_lease_that_is_granted_after_it_was_revoked_is_revoked_again,
        long_names_fit_into_small_requests,
    ]
}

/// The smallest quota that leaves room for some thousand locks.
const QUOTA_BYTES: &str = "1500000";

async fn is_out_of_space(client: &mut Client) -> bool {
    let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
    !alarms.alarms().is_empty()
}

/// What an operator does about it.
pub(crate) async fn make_space(client: &mut Client) {
    let now = client.get("x", None).await.unwrap().header().unwrap().revision();
    // Otherwise it is carried out later, and defragmenting gives nothing back.
    let physical = Some(CompactionOptions::new().with_physical());
    client.compact(now, physical).await.unwrap();
    eventually("etcd is defragmented and takes writes again", || {
        let mut client = client.clone();
        async move {
            let done = client.defragment().await.is_ok();
            let raised =
                client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
            for member in raised.alarms() {
                let mut of = AlarmOptions::new();
                of.with_member(member.member_id());
                client
                    .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of))
                    .await
                    .unwrap();
            }
            done && client.put("fill", "", None).await.is_ok()
        }
    })
    .await;
}

/// Fills etcd until it has no space left.
async fn fill(client: &mut Client) {
    while client.put("fill", vec![b'x'; 32 * 1024], None).await.is_ok() {}
    assert!(is_out_of_space(client).await);
}

/// etcd applies the write that exceeds its quota, and answers that there is no
/// space: a write that was answered as a failure must not hold its resource.
/// Trap: etcd 36
async fn a_write_that_exceeds_the_space_leaves_nothing_locked(version: Version) {
    let server = EtcdServer::start_with(version, &["--quota-backend-bytes", QUOTA_BYTES]).await;
    let backend = open(&server.url).await;
    let mut client = server.client().await;
    for round in 0..8 {
        let (granted, refused) = cross_the_quota(&server, &backend, round).await;
        assert!(refused > 0);
        // Revocations need no space, so nothing may be left behind by now.
        eventually("only what was granted is held", || async {
            let held: BTreeSet<String> = keys(&server, "/t/r/").await.into_iter().collect();
            let names = granted.iter().map(|(name, _)| format!("/t/r/{name}/h"));
            held == names.collect()
        })
        .await;
        for (name, grant) in &granted {
            unlock(&backend, name, grant).await.unwrap();
        }
        make_space(&mut client).await;
    }
    backend.close().await;
    let left = server.leases().await;
    assert!(left < 10, "{left} leases are left");
}

/// Takes locks from many tasks while etcd is being filled: returns the grants,
/// and how many tries were answered as failures.
async fn cross_the_quota(
    server: &EtcdServer,
    backend: &Shared,
    round: usize,
) -> (Vec<(String, Grant)>, usize) {
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let callers: Vec<_> = (0..64)
        .map(|caller| {
            let (backend, full) = (Arc::clone(backend), Arc::clone(&full));
            tokio::spawn(async move {
                let (mut granted, mut failed, mut n) = (Vec::new(), 0, 0);
                while !full.load(std::sync::atomic::Ordering::SeqCst) {
                    n += 1;
                    let name = format!("{round}-{caller}-{n}");
                    match try_lock(&backend, &name).await {
                        Ok(grant) => granted.push((name, grant)),
                        Err(BackendError::Unavailable(_) | BackendError::Unknown(_)) => {
                            failed += 1;
                            // Some go, so that leases are at hand for reuse.
                            if let Some((name, grant)) = granted.pop() {
                                let _ = unlock(&backend, &name, &grant).await;
                            }
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
                (granted, failed)
            })
        })
        .collect();
    let mut client = server.client().await;
    while client.put("fill", vec![b'x'; 4 * 1024], None).await.is_ok() {}
    sleep(Duration::from_millis(200)).await;
    full.store(true, std::sync::atomic::Ordering::SeqCst);
    let (mut granted, mut failed) = (Vec::new(), 0);
    for caller in callers {
        let (more, failures) = caller.await.unwrap();
        granted.extend(more);
        failed += failures;
    }
    (granted, failed)
}

fn assert_names_the_cause(error: &BackendError) {
    let BackendError::Unavailable(why) = error else { panic!("{error:?}") };
    assert!(why.contains("space exceeded") && why.contains("disarm"), "{why}");
}

/// Deletes and revocations need no space.
/// Trap: etcd 36
async fn without_space_locks_end_and_tries_name_the_cause(version: Version) {
    let server = EtcdServer::start_with(version, &["--quota-backend-bytes", QUOTA_BYTES]).await;
    let backend = open(&server.url).await;
    let mut client = server.client().await;
    let mut held = Vec::new();
    for name in ["a", "b", "c"] {
        held.push((name, try_lock(&backend, name).await.unwrap()));
    }
    let (first, idle) = (held.remove(0), try_lock(&backend, "idle").await.unwrap());
    unlock(&backend, "idle", &idle).await.unwrap();
    fill(&mut client).await;

    assert_names_the_cause(&try_lock(&backend, "new").await.unwrap_err());
    renew(&backend, "b", &held[0].1.lock_id, TTL).await.unwrap();
    unlock(&backend, first.0, &first.1).await.unwrap();
    force(&backend, "c").await.unwrap();
    // Among failing tries too, which etcd would refuse together with it.
    let tries: Vec<_> = (0..32)
        .map(|n| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move {
                let start = Instant::now();
                let name = format!("new-{n}");
                match try_lock(&backend, &name).await {
                    // etcd 3.4 does not count what is written in a batch.
                    Ok(grant) => unlock(&backend, &name, &grant).await.unwrap(),
                    Err(error) => assert_names_the_cause(&error),
                }
                assert!(start.elapsed() < Duration::from_secs(10));
            })
        })
        .collect();
    unlock(&backend, "b", &held[0].1).await.unwrap();
    for tried in tries {
        tried.await.unwrap();
    }
    // Who starts meanwhile can still release.
    let another = open(&server.url).await;
    assert!(matches!(force(&another, "b").await, Err(BackendError::NotHeld { held: false })));

    make_space(&mut client).await;
    eventually("locks are granted again", || async { try_lock(&backend, "a").await.is_ok() })
        .await;
    assert_eq!(keys(&server, "/t/r/").await, ["/t/r/a/h"]);
}

/// A lease for every TTL would be a lease for nearly every lock.
/// Trap: etcd 37
async fn locks_of_any_ttl_share_a_bounded_number_of_leases(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let callers = (0..16_u64).map(|caller| {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move {
            for n in 0..125_u64 {
                // Spread over 1 to 24 hours, each another one.
                let seconds = 3_600 + (7_919 * (125 * caller + n)) % 82_800;
                let (name, ttl) = (format!("{caller}-{n}"), Duration::from_secs(seconds));
                let grant = backend.try_lock(&attempt(&name, ttl), until()).await.unwrap();
                assert!(grant.ttl >= ttl && grant.ttl <= ttl * 26 / 25, "{ttl:?}: {grant:?}");
                unlock(&backend, &name, &grant).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let leases = server.leases().await;
    assert!(leases < 500, "{leases} leases after 2,000 locks");
    backend.close().await;
    assert_eq!(server.leases().await, 0);
}

/// The address of a way to `server` that keeps requests back while `holds` is true. The
/// server gets them later, also if their client has gone meanwhile.
async fn holding(server: &str, holds: watch::Receiver<bool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(hold(client, server, holds.clone()));
        }
    });
    address
}

async fn hold(client: TcpStream, server: TcpStream, mut holds: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // What is read meanwhile is kept apart, as it came.
    let (chunks, mut to_send) = mpsc::channel::<Vec<u8>>(1_024);
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = from_client.read(&mut buffer).await {
            if chunks.send(buffer[..bytes].to_vec()).await.is_err() {
                break;
            }
        }
    };
    let sending = async {
        while let Some(chunk) = to_send.recv().await {
            let was_held = *holds.borrow_and_update();
            if holds.wait_for(|holds| !holds).await.is_err()
                || to_server.write_all(&chunk).await.is_err()
            {
                break;
            }
            if was_held {
                // The server begins with it before it learns of the client's end.
                sleep(Duration::from_secs(1)).await;
            }
        }
    };
    tokio::select! {
        _ = async { tokio::join!(reading, sending) } => {}
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
    }
}

/// A request may reach etcd after its sender has given it up, and revoked what it asks
/// for. The lease would live for as long as its TTL, which may be a day.
async fn a_lease_that_is_granted_after_it_was_revoked_is_revoked_again(version: Version) {
    let server = EtcdServer::start(version).await;
    let holds = watch::Sender::new(false);
    let proxy = Proxy::start(holding(server.address(), holds.subscribe()).await).await;
    let backend = open(proxy.address()).await;
    holds.send_replace(true);
    proxy.lead_to(server.address());
    // Over a second connection, when the first one has been silent for too long.
    backend.try_lock(&attempt("r", TTL), Instant::now() + 3 * SOON).await.unwrap();
    let leases = server.leases().await;
    holds.send_replace(false);
    eventually("the first request is carried out", async || server.leases().await > leases)
        .await;
    let give_up = Instant::now() + 3 * SOON;
    while server.leases().await > leases {
        assert!(Instant::now() < give_up, "the late lease was not revoked");
        sleep(Duration::from_millis(200)).await;
    }
}

/// A batch that is too large is split, and a lock that is too large by itself says
/// so; the connection lives on.
async fn long_names_fit_into_small_requests(version: Version) {
    let server = EtcdServer::start_with(version, &["--max-request-bytes", "16384"]).await;
    let backend = open(&server.url).await;
    // Three times as long when it is written as a key.
    let long = |n: usize| format!("{n:04}{}", "/".repeat(1_020));
    let held = try_lock(&backend, "held").await.unwrap();
    let wait = lock(&backend, "held");
    queued(&server, "held", 1).await;
    let place = keys(&server, "/t/r/held/q/").await;
    let tries = (0..80).map(|n| {
        let backend = Arc::clone(&backend);
        tokio::spawn(async move { try_lock(&backend, &long(n)).await })
    });
    for tried in tries.collect::<Vec<_>>() {
        tried.await.unwrap().unwrap();
    }
    assert_eq!(keys(&server, "/t/r/held/q/").await, place, "the waiter kept its place");
    unlock(&backend, "held", &held).await.unwrap();
    soon(wait).await;

    let server = EtcdServer::start_with(version, &["--max-request-bytes", "4096"]).await;
    let backend = open(&server.url).await;
    let short = try_lock(&backend, "short").await.unwrap();
    let BackendError::Unavailable(why) = try_lock(&backend, &long(0)).await.unwrap_err() else {
        panic!("not known to have changed nothing")
    };
    assert!(why.contains("--max-request-bytes"), "{why}");
    unlock(&backend, "short", &short).await.unwrap();
}
