//! The actions of scripts, on each backend, and how scripts are called.
//!
//! An action does not depend on the text of its script, so each action is tried on each backend
//! once.

use leasehold_lock::Mode;
use tokio::time::Instant;

use crate::{
    client::{NULL, int},
    script_calls::{Case, Effect, TEN_MINUTES},
    scripts::{
        DAPRD_UNLOCK, NODE_REDLOCK_ACQUIRE, REDIS_PY_EXTEND, REDISLOCK_TTL, RELEASE, RENEW,
        SPRING_OBTAIN,
    },
    stage::{Backend, Stage},
};

on_each_backend!(
    a_script_releases,
    a_script_renews,
    a_script_adds_to_the_ttl,
    what_is_added_to_the_ttl_many_times_is_not_lost,
    a_script_acquires,
    a_script_renews_or_acquires,
    a_script_returns_the_ttl,
);

async fn a_script_releases(backend: Backend) {
    let case = Case { anothers: int(-2), none: int(-1), ..Case::ends(DAPRD_UNLOCK) };
    case.holds(backend).await;
}

async fn a_script_renews(backend: Backend) {
    Case::renews(RENEW).holds(backend).await;
}

async fn a_script_adds_to_the_ttl(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    client.eval(RENEW, "k", &["v", TEN_MINUTES]).await;
    assert_eq!(client.eval(REDIS_PY_EXTEND, "k", &["v", TEN_MINUTES, "0"]).await, int(1));
    let left = client.ask(&["PTTL", "k"]).await.number();
    assert!((1_100_000..=1_260_000).contains(&left), "{left}");
}

/// On etcd, which reports less than the remaining TTL, each addition once lost up to two
/// seconds.
async fn what_is_added_to_the_ttl_many_times_is_not_lost(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    let began = Instant::now();
    client.take("k", "v").await;
    for _ in 0..20 {
        assert_eq!(client.eval(REDIS_PY_EXTEND, "k", &["v", "1000", "0"]).await, int(1));
    }
    let left = client.ask(&["PTTL", "k"]).await.number();
    let took = began.elapsed();
    let whole = left + i64::try_from(took.as_millis()).unwrap();
    assert!(
        whole >= 70_000,
        "a minute and 20 s were asked for, and {left} ms are left after {took:?}"
    );
}

async fn a_script_acquires(backend: Backend) {
    let case = Case {
        own: int(0),
        none: int(1),
        takes: true,
        ..Case::new(NODE_REDLOCK_ACQUIRE, &[TEN_MINUTES], Effect::Nothing)
    };
    case.holds(backend).await;
}

async fn a_script_renews_or_acquires(backend: Backend) {
    let case =
        Case { anothers: NULL, none: int(1), takes: true, ..Case::renews(SPRING_OBTAIN) };
    case.holds(backend).await;
}

async fn a_script_returns_the_ttl(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    let left = client.eval(REDISLOCK_TTL, "k", &["v"]).await.number();
    assert!((1..=62_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_value_does_not_get_the_ttl_of_a_lock_that_was_taken_otherwise() {
    let stage = Stage::memory().await;
    stage.take_otherwise("k", "secret", Mode::Exclusive).await;
    let mut client = stage.client().await;
    assert_eq!(client.eval(REDISLOCK_TTL, "k", &["secret"]).await, int(-3));
}

#[tokio::test]
async fn a_script_takes_one_key() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let reply = client.ask(&["EVAL", NODE_REDLOCK_ACQUIRE, "2", "a", "b", "v", "1000"]).await;
    assert!(reply.error().contains("a script with 2 keys; take locks one by one"));
    assert_eq!(client.ask(&["EXISTS", "a", "b"]).await, int(0));
}

#[tokio::test]
async fn a_script_without_its_arguments_is_refused() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    let reply = client.eval(RELEASE, "k", &[]).await.error();
    assert!(reply.contains("ARGV[1]"), "{reply}");
    let reply = client.eval(RENEW, "k", &["v"]).await.error();
    assert!(reply.contains("ARGV[2]"), "{reply}");
    let reply = client.eval(RENEW, "k", &["v", "0"]).await.error();
    assert!(reply.contains("invalid expire time"), "{reply}");
}
