//! Keys, values and expiries that are refused. The field is named, and nothing changes.

use crate::{
    client::{Client, Value, bulk, int, ok},
    scripts::{DAPRD_UNLOCK, REDIS_PY_EXTEND, RENEW, SPRING_OBTAIN},
    stage::{Backend, Setup, Stage},
};

async fn set(client: &mut Client, key: &[u8], value: &[u8]) -> Value {
    client.ask(&[b"SET", key, value, b"NX", b"PX", b"60000"]).await
}

#[tokio::test]
async fn a_bad_key_is_refused_by_its_name() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for (key, why) in [
        (b"" as &[u8], "empty"),
        (b"a\xffb", "not UTF-8"),
        (b"a\nb", "control"),
        (b"\x00", "control"),
        (&[b'x'; 1025], "1025 bytes"),
    ] {
        let reply = set(&mut client, key, b"v").await.error();
        assert!(
            reply.starts_with("ERR leasehold: INVALID_REQUEST: key ") && reply.contains(why),
            "{reply}"
        );
        for command in ["GET", "PTTL", "EXISTS"] {
            let reply = client.ask(&[command.as_bytes(), key]).await.error();
            assert!(
                reply.starts_with("ERR leasehold: INVALID_REQUEST: key "),
                "{command}: {reply}"
            );
        }
    }
    assert_eq!(set(&mut client, "é".repeat(512).as_bytes(), b"v").await, ok());
}

#[tokio::test]
async fn a_bad_value_is_refused_by_its_name_and_takes_nothing() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for (value, why) in
        [(b"" as &[u8], "empty"), (b"a\xffb", "not UTF-8"), (&[b'x'; 257], "257 bytes")]
    {
        let reply = set(&mut client, b"k", value).await.error();
        assert!(
            reply.starts_with("ERR leasehold: INVALID_REQUEST: value ") && reply.contains(why),
            "{reply}"
        );
        assert!(!client.is_locked("k").await, "{reply}");
    }
    assert_eq!(set(&mut client, b"k", &[b'x'; 256]).await, ok());
}

#[tokio::test]
async fn a_script_that_may_take_the_lock_needs_a_value() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let reply = client.eval(SPRING_OBTAIN, "k", &["", "60000"]).await.error();
    assert!(reply.starts_with("ERR leasehold: INVALID_REQUEST: value is empty"), "{reply}");
    let reply = client.eval(SPRING_OBTAIN, "", &["v", "60000"]).await.error();
    assert!(reply.starts_with("ERR leasehold: INVALID_REQUEST: key is empty"), "{reply}");
}

/// redsync compares with an empty value if the lock was never taken.
#[tokio::test]
async fn an_impossible_value_is_compared_and_found_different() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    for value in ["", "a\nb", &"x".repeat(257)] {
        assert_eq!(client.eval(DAPRD_UNLOCK, "k", &[value]).await, int(-2));
        assert_eq!(client.eval(DAPRD_UNLOCK, "free", &[value]).await, int(-1));
        assert_eq!(client.eval(RENEW, "k", &[value, "600000"]).await, int(0));
        assert_eq!(client.ask(&["DELEX", "k", "IFEQ", value]).await, int(0));
    }
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("v"));
    assert!(client.ask(&["PTTL", "k"]).await.number() <= 60_000);
}

async fn is_refused(words: &[&str], expected: &str) {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.take("held", "v").await;
    let before = client.ask(&["PTTL", "held"]).await.number();
    let reply = client.ask(words).await.error();
    assert!(reply.contains(expected), "{words:?}: {reply}");
    assert!(!client.is_locked("k").await);
    assert_eq!(client.ask(&["GET", "held"]).await, bulk("v"));
    assert!(client.ask(&["PTTL", "held"]).await.number() <= before);
}

#[tokio::test]
async fn an_expiry_must_be_a_positive_number() {
    for expiry in ["0", "-1"] {
        is_refused(&["SET", "k", "v", "NX", "PX", expiry], "invalid expire time in 'set'")
            .await;
        is_refused(&["SET", "held", "v", "XX", "EX", expiry], "invalid expire time").await;
    }
    for expiry in ["x", "1.5", "", "99999999999999999999"] {
        is_refused(&["SET", "k", "v", "NX", "PX", expiry], "not an integer").await;
    }
}

#[tokio::test]
async fn a_plain_set_is_refused() {
    is_refused(&["SET", "k", "v"], "SET without NX").await;
    is_refused(&["SET", "held", "w", "PX", "600000"], "SET without NX").await;
}

#[tokio::test]
async fn other_options_of_set_are_refused_by_their_names() {
    for option in ["GET", "KEEPTTL", "EXAT", "PXAT"] {
        let expected = format!("SET with {option} is not one of");
        is_refused(&["SET", "k", "v", "NX", option, "600000"], &expected).await;
    }
    is_refused(&["SET", "k", "v", "NX", "XX", "PX", "1"], "SET with XX").await;
    is_refused(&["SET", "held", "w", "IFEQ", "v", "PX", "600000"], "IFEQ of another").await;
}

#[tokio::test]
async fn a_ttl_above_the_stores_limit_is_refused() {
    let setup = Setup { properties: vec![("maxTTL", "1m")], ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut client = stage.client().await;
    for expiry in ["61", "9223372036854775807"] {
        let reply = client.ask(&["SET", "k", "v", "NX", "EX", expiry]).await.error();
        assert!(reply.starts_with("ERR leasehold: INVALID_REQUEST: ttl "), "{reply}");
        assert!(reply.contains("maxTTL"), "{reply}");
    }
    assert!(!client.is_locked("k").await);
    assert_eq!(client.ask(&["SET", "k", "v", "NX", "EX", "60"]).await, ok());
    let reply = client.ask(&["SET", "k", "v", "XX", "EX", "61"]).await.error();
    assert!(reply.contains("maxTTL"), "{reply}");
    assert!(client.ask(&["PTTL", "k"]).await.number() <= 60_000);
}

#[tokio::test]
async fn a_script_with_a_ttl_above_the_stores_limit_changes_nothing() {
    let setup = Setup { properties: vec![("maxTTL", "1m")], ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    for arguments in
        [["v", "61000", "1"], ["v", "59000", "0"], ["v", "9223372036854775807", "0"]]
    {
        let reply = client.eval(REDIS_PY_EXTEND, "k", &arguments).await.error();
        assert!(reply.contains("maxTTL"), "{reply}");
    }
    assert!(client.ask(&["PTTL", "k"]).await.number() <= 60_000);
}
