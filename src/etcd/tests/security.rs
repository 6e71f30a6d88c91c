//! Users, roles, certificates: what works, and what is refused by name.

use std::collections::BTreeSet;

use etcd_client::{Client, GetOptions, Permission};
use leasehold_lock::{BackendError, OpenError};
use tempfile::TempDir;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    Case, cases,
    etcd::{EtcdCluster, EtcdServer, Tls, Version},
    fixture::*,
    proxy::Proxy,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_role_for_the_prefix_suffices,
        an_expired_login_is_renewed,
        a_watch_whose_token_expired_costs_no_connection,
        a_login_that_ends_in_use_costs_no_connection,
        a_change_of_users_costs_no_connection,
        a_store_goes_on_when_authentication_is_turned_off_and_on,
        what_etcd_refuses_is_named,
        rights_lost_later_are_reported,
        wrong_endpoints_are_reported_in_time,
        wrong_certificates_are_reported,
    ]
}

/// A root, and a user whose role covers one prefix.
async fn with_users(version: Version, args: &[&str]) -> (EtcdServer, Client) {
    let server = EtcdServer::start_with(version, args).await;
    let mut client = server.client().await;
    client.user_add("root", "rootpw", None).await.unwrap();
    client.role_add("root").await.unwrap();
    client.user_grant_role("root", "root").await.unwrap();
    client.user_add("locker", "pw", None).await.unwrap();
    client.role_add("locks").await.unwrap();
    let permission = Permission::read_write("/t/").with_prefix();
    client.role_grant_permission("locks", permission).await.unwrap();
    client.user_grant_role("locker", "locks").await.unwrap();
    client.auth_enable().await.unwrap();
    let options = etcd_client::ConnectOptions::new().with_user("root", "rootpw");
    let root = Client::connect([&server.url], Some(options)).await.unwrap();
    (server, root)
}

fn items<'a>(
    server: &'a EtcdServer,
    prefix: &'a str,
    password: &'a str,
) -> Vec<(&'a str, &'a str)> {
    vec![
        ("endpoints", &server.url),
        ("keyPrefixPath", prefix),
        ("username", "locker"),
        ("password", password),
    ]
}

async fn a_role_for_the_prefix_suffices(version: Version) {
    let (server, _root) = with_users(version, &[]).await;
    let a = open_with(&items(&server, "/t", "pw")).await;
    let b = open_with(&items(&server, "/t/", "pw")).await;
    let held = try_lock(&a, "r").await.unwrap();
    let wait = lock(&b, "r");
    sleep(Duration::from_millis(300)).await;
    renew(&b, "r", &held.lock_id, 2 * TTL).await.unwrap();
    unlock(&b, "r", &held).await.unwrap();
    let next = soon(wait).await;
    force(&a, "r").await.unwrap();
    assert!(token(&next) > token(&held));
    a.close().await;
    b.close().await;
}

async fn an_expired_login_is_renewed(version: Version) {
    let (server, _root) = with_users(version, &["--auth-token-ttl", "1"]).await;
    let backend = open_with(&items(&server, "/t", "pw")).await;
    for _ in 0..3 {
        let held = try_lock(&backend, "r").await.unwrap();
        sleep(Duration::from_millis(2_500)).await;
        let wait = lock(&backend, "r");
        renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
        unlock(&backend, "r", &held).await.unwrap();
        let next = soon(wait).await;
        unlock(&backend, "r", &next).await.unwrap();
    }
}

/// A member whose logins last so long, however much they are used.
async fn with_signed_logins(version: Version, ttl: &str) -> (EtcdServer, Client, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "a secret that signs logins, of more than 32 bytes").unwrap();
    let logins = format!("jwt,sign-method=HS256,priv-key={},ttl={ttl}", key.display());
    let (server, root) = with_users(version, &["--auth-token", &logins]).await;
    (server, root, folder)
}

async fn a_login_that_ends_in_use_costs_no_connection(version: Version) {
    let (server, mut root, _folder) = with_signed_logins(version, "2s").await;
    let proxy = Proxy::start(&server.url).await;
    let mut items = items(&server, "/t", "pw");
    items[0].1 = proxy.address();
    let backend = open_with(&items).await;
    let opened = proxy.admitted();
    let held = try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    let mut places = BTreeSet::new();
    for n in 0..14 {
        sleep(Duration::from_millis(500)).await;
        renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
        // Another stream, and all other requests, with whatever login there is.
        let name = format!("other-{n}");
        let other = try_lock(&backend, &name).await.unwrap();
        let other_wait = lock(&backend, &name);
        sleep(Duration::from_millis(50)).await;
        unlock(&backend, &name, &other).await.unwrap();
        soon(other_wait).await;
        root.refresh_token().await.unwrap();
        let prefix = GetOptions::new().with_prefix().with_keys_only();
        let queue = root.get("/t/r/r/q/", Some(prefix)).await.unwrap();
        places.extend(queue.kvs().iter().map(|pair| pair.key().to_vec()));
    }
    assert_eq!(places.len(), 1, "the waiter queued again");
    // Three logins ended. A machine that stands still for a second costs one connection, too.
    assert!(proxy.admitted() <= opened + 1, "{} connections", proxy.admitted());
    unlock(&backend, "r", &held).await.unwrap();
    soon(wait).await;
}

/// A signed login is of no use any more once users or roles were changed.
async fn a_change_of_users_costs_no_connection(version: Version) {
    let (server, mut root, _folder) = with_signed_logins(version, "10m").await;
    let proxy = Proxy::start(&server.url).await;
    let mut items = items(&server, "/t", "pw");
    items[0].1 = proxy.address();
    let backend = open_with(&items).await;
    let opened = proxy.admitted();
    let held = try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    for n in 0..3 {
        root.refresh_token().await.unwrap();
        root.user_add(format!("another-{n}"), "pw", None).await.unwrap();
        renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
        let name = format!("other-{n}");
        let other = try_lock(&backend, &name).await.unwrap();
        let other_wait = lock(&backend, &name);
        sleep(Duration::from_millis(1_200)).await;
        unlock(&backend, &name, &other).await.unwrap();
        soon(other_wait).await;
    }
    assert_eq!(proxy.admitted(), opened, "the connection was lost");
    unlock(&backend, "r", &held).await.unwrap();
    soon(wait).await;
}

async fn a_store_goes_on_when_authentication_is_turned_off_and_on(version: Version) {
    let (server, root) = with_users(version, &[]).await;
    let backend = open_with(&items(&server, "/t", "pw")).await;
    let held = try_lock(&backend, "r").await.unwrap();
    root.auth_client().auth_disable().await.unwrap();
    renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
    try_lock(&backend, "a").await.unwrap();
    server.client().await.auth_enable().await.unwrap();
    renew(&backend, "r", &held.lock_id, TTL).await.unwrap();
    try_lock(&backend, "b").await.unwrap();
    unlock(&backend, "r", &held).await.unwrap();
}

/// A watch stream keeps the token that it was opened with, and etcd checks it for each
/// watch that is created over the stream.
/// Trap: etcd 39
async fn a_watch_whose_token_expired_costs_no_connection(version: Version) {
    let (server, _root) = with_users(version, &["--auth-token-ttl", "1"]).await;
    let proxy = Proxy::start(&server.url).await;
    let items = [
        ("endpoints", proxy.address()),
        ("keyPrefixPath", "/t"),
        ("username", "locker"),
        ("password", "pw"),
    ];
    let backend = open_with(&items).await;
    let mut held = Vec::new();
    let mut waits = Vec::new();
    let connections = proxy.admitted();
    for resource in ["a", "b", "c", "d", "e"] {
        held.push((resource, try_lock(&backend, resource).await.unwrap()));
        waits.push(lock(&backend, resource));
        sleep(Duration::from_millis(2_500)).await;
    }
    for (resource, held) in &held {
        unlock(&backend, resource, held).await.unwrap();
    }
    for wait in waits {
        soon(wait).await;
    }
    // Four tokens expired. A machine that stands still for a second costs one connection, too.
    assert!(proxy.admitted() <= connections + 1, "{} connections", proxy.admitted());
}

/// The properties that opening names, or the reason.
async fn refused(items: &[(&str, &str)]) -> Vec<String> {
    match try_open(items).await.err().expect("it opened") {
        OpenError::Refused(violations) => {
            violations.into_iter().map(|violation| violation.field).collect()
        }
        OpenError::Unavailable(why) => vec![format!("unavailable: {why}")],
    }
}

/// The same from an etcd that answers, which on a busy machine may take more than one attempt.
async fn refused_by_etcd(items: &[(&str, &str)]) -> Vec<String> {
    let give_up = Instant::now() + SOON;
    loop {
        let violations = refused(items).await;
        if !violations[0].starts_with("unavailable") || Instant::now() >= give_up {
            return violations;
        }
    }
}

async fn what_etcd_refuses_is_named(version: Version) {
    let (server, _root) = with_users(version, &[]).await;
    assert_eq!(refused_by_etcd(&items(&server, "/t", "wrong")).await, ["password"]);
    assert_eq!(refused_by_etcd(&items(&server, "/elsewhere", "pw")).await, ["keyPrefixPath"]);
    assert_eq!(refused_by_etcd(&[("endpoints", server.url.as_str())]).await, ["username"]);
    // A user where none is asked for is no mistake.
    let open_server = EtcdServer::start(version).await;
    open_with(&items(&open_server, "/t", "pw")).await;
}

async fn rights_lost_later_are_reported(version: Version) {
    let (server, mut root) = with_users(version, &[]).await;
    let backend = open_with(&items(&server, "/t", "pw")).await;
    let grant = try_lock(&backend, "r").await.unwrap();
    unlock(&backend, "r", &grant).await.unwrap();
    root.user_revoke_role("locker", "locks").await.unwrap();
    let tried = try_lock(&backend, "r").await.unwrap_err();
    let BackendError::Unavailable(why) = tried else { panic!("{tried:?}") };
    assert!(why.contains("permission denied"), "{why}");
    root.user_grant_role("locker", "locks").await.unwrap();
    try_lock(&backend, "r").await.unwrap();
}

async fn wrong_endpoints_are_reported_in_time(version: Version) {
    let dead = format!("127.0.0.1:{}", leasehold_testkit::ports::free_port());
    let violations =
        tokio::time::timeout(SOON, refused(&[("endpoints", dead.as_str())])).await.unwrap();
    assert!(
        violations[0].starts_with("unavailable") && violations[0].contains(&dead),
        "{violations:?}"
    );
    let server = EtcdServer::start(version).await;
    let one_works = format!("{dead},{}", server.url);
    let backend = open(&one_works).await;
    try_lock(&backend, "r").await.unwrap();
}

async fn wrong_certificates_are_reported(version: Version) {
    let cluster = EtcdCluster::start(version, 1, true).await;
    let endpoints = cluster.endpoints();
    let (right, wrong) = (cluster.tls.clone().unwrap(), Tls::generate());
    let with = |tls: &Tls, own: &Tls| {
        vec![
            ("endpoints".to_owned(), endpoints.clone()),
            ("tlsEnable".to_owned(), "true".to_owned()),
            ("ca".to_owned(), tls.ca.clone()),
            ("cert".to_owned(), own.cert.clone()),
            ("key".to_owned(), own.key.clone()),
        ]
    };
    for (name, ca, own) in [("a wrong CA", &wrong, &right), ("a wrong client", &right, &wrong)]
    {
        let items = with(ca, own);
        let items: Vec<_> = items.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let violations = refused(&items).await;
        assert!(violations[0].starts_with("unavailable"), "{name}: {violations:?}");
    }
    let items = with(&right, &right);
    let items: Vec<_> = items.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    open_with(&items).await;
}
