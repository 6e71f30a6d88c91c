//! The password of a front.

use crate::{
    client::{Client, Value, ok},
    stage::{Backend, Setup, Stage},
};

async fn stage() -> Stage {
    let setup = Setup { password: Some("se cret"), ..Setup::default() };
    Stage::with(Backend::Memory, setup).await
}

async fn client() -> (Stage, Client) {
    let stage = stage().await;
    let client = stage.client().await;
    (stage, client)
}

fn pong() -> Value {
    Value::Simple("PONG".into())
}

#[tokio::test]
async fn before_the_password_every_command_is_refused() {
    let (_stage, mut client) = client().await;
    for words in [
        &["PING"] as &[&str],
        &["SET", "k", "v", "NX", "PX", "60000"],
        &["GET", "k"],
        &["DEL", "k"],
        &["INFO"],
        &["CLIENT", "SETNAME", "x"],
        &["SCRIPT", "LOAD", "return 1"],
        &["EVAL", "return 1", "0"],
        &["COMMAND"],
        &["SELECT", "0"],
        &["FLUSHALL"],
        &["SET", "k"],
    ] {
        let reply = client.ask(words).await.error();
        assert_eq!(reply, "NOAUTH Authentication required.", "{words:?}");
    }
}

#[tokio::test]
async fn auth_takes_the_password_alone() {
    let (_stage, mut client) = client().await;
    assert_eq!(client.ask(&["AUTH", "se cret"]).await, ok());
    assert_eq!(client.ask(&["PING"]).await, pong());
}

#[tokio::test]
async fn auth_takes_the_password_of_the_user_default() {
    let (_stage, mut client) = client().await;
    assert_eq!(client.ask(&["AUTH", "default", "se cret"]).await, ok());
    assert_eq!(client.ask(&["PING"]).await, pong());
}

#[tokio::test]
async fn hello_takes_the_password_too() {
    let (_stage, mut client) = client().await;
    let reply =
        client.ask(&["HELLO", "3", "AUTH", "default", "se cret", "SETNAME", "app"]).await;
    assert!(matches!(reply, Value::Map(_)), "{reply:?}");
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await.text(), "app");
}

#[tokio::test]
async fn a_wrong_password_or_user_is_refused() {
    let (_stage, mut client) = client().await;
    for words in [
        &["AUTH", "se cre"] as &[&str],
        &["AUTH", ""],
        &["AUTH", "default", "secret"],
        &["AUTH", "admin", "se cret"],
        &["HELLO", "3", "AUTH", "default", "x"],
        &["HELLO", "3", "AUTH", "admin", "se cret"],
    ] {
        assert!(client.ask(words).await.error().starts_with("WRONGPASS "), "{words:?}");
        assert!(client.ask(&["PING"]).await.error().starts_with("NOAUTH "), "{words:?}");
    }
}

#[tokio::test]
async fn hello_without_the_password_changes_nothing() {
    let (_stage, mut client) = client().await;
    let reply = client.ask(&["HELLO", "3"]).await.error();
    assert!(reply.starts_with("NOAUTH HELLO must be called"), "{reply}");
    client.ask(&["AUTH", "se cret"]).await;
    assert_eq!(client.ask_raw(&["GET", "k"]).await, "$-1\r\n", "it speaks RESP2");
}

#[tokio::test]
async fn a_wrong_password_later_does_not_take_the_right_one_back() {
    let (_stage, mut client) = client().await;
    client.ask(&["AUTH", "se cret"]).await;
    client.ask(&["AUTH", "x"]).await.error();
    assert_eq!(client.ask(&["PING"]).await, pong());
}

#[tokio::test]
async fn after_a_reset_the_password_is_asked_for_again() {
    let (_stage, mut client) = client().await;
    client.ask(&["HELLO", "3", "AUTH", "default", "se cret", "SETNAME", "app"]).await;
    assert_eq!(client.ask(&["RESET"]).await, Value::Simple("RESET".into()));
    assert!(client.ask(&["PING"]).await.error().starts_with("NOAUTH "));
}

#[tokio::test]
async fn a_password_that_nobody_asked_for_is_refused_as_redis_refuses_it() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let reply = client.ask(&["AUTH", "x"]).await.error();
    assert!(reply.starts_with("ERR AUTH <password> called without any password"), "{reply}");
    assert_eq!(client.ask(&["AUTH", "default", "x"]).await, ok());
}

#[tokio::test]
async fn quit_needs_no_password() {
    let (_stage, mut client) = client().await;
    client.send(b"QUIT\r\n").await;
    assert_eq!(client.ended().await, "+OK\r\n");
}
