//! The commands of daprd 1.18's lock component, in its order.

use crate::{
    client::{Value, int, ok, request},
    scripts::DAPRD_UNLOCK,
    stage::{Backend, Setup, Stage},
};

const PASSWORD: &str = "secret";

async fn stage() -> Stage {
    let setup = Setup { password: Some(PASSWORD), ..Setup::default() };
    Stage::with(Backend::Memory, setup).await
}

#[tokio::test]
async fn the_probe_that_asks_for_the_version_is_answered() {
    let stage = stage().await;
    let mut probe = stage.client().await;
    assert_eq!(probe.ask(&["AUTH", PASSWORD]).await, ok());
    assert_eq!(probe.ask(&["SELECT", "0"]).await, ok());
    let reply = probe.ask(&["INFO", "server"]).await.text();
    let version = reply.lines().find_map(|line| line.strip_prefix("redis_version:"));
    assert_eq!(version, Some("7.2.4"), "{reply}");
}

#[tokio::test]
async fn a_connection_is_set_up_and_locks_are_taken_and_released() {
    let stage = stage().await;
    let mut client = stage.client().await;
    let hello = client.ask(&["HELLO", "3", "AUTH", "default", PASSWORD]).await;
    assert!(matches!(hello, Value::Map(_)), "{hello:?}");
    // Sent together.
    let set_up = [
        request(&["SELECT", "0"]),
        request(&["CLIENT", "MAINT_NOTIFICATIONS", "on", "moving-endpoint-type", "none"]),
        request(&["CLIENT", "SETINFO", "LIB-NAME", "go-redis(,go1.26)"]),
        request(&["CLIENT", "SETINFO", "LIB-VER", "9.17.3"]),
    ];
    client.send(&set_up.concat()).await;
    assert_eq!(client.reply().await, ok());
    client.reply().await.error();
    assert_eq!((client.reply().await, client.reply().await), (ok(), ok()));
    assert_eq!(client.ask(&["PING"]).await, Value::Simple("PONG".into()));
    let reply = client.ask(&["INFO", "replication"]).await.text();
    assert!(reply.contains("role:master") && reply.contains("connected_slaves:0"), "{reply}");

    let key = "lock||app||order-1";
    let try_lock = |owner| ["SET", key, owner, "EX", "60", "NX"];
    assert_eq!(client.ask(&try_lock("a")).await, ok());
    assert_eq!(client.ask(&try_lock("b")).await, Value::Null);
    assert_eq!(client.eval(DAPRD_UNLOCK, key, &["b"]).await, int(-2));
    assert_eq!(client.eval(DAPRD_UNLOCK, key, &["a"]).await, int(1));
    assert_eq!(client.eval(DAPRD_UNLOCK, key, &["a"]).await, int(-1));
}
