//! A page in a browser can send requests of HTTP to a front on loopback. It cannot take a lock
//! with them.

use crate::stage::{Backend, Setup, Stage};

const LOCKS: &str = "SET k v NX PX 60000\r\n*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\n\
                     PX\r\n$5\r\n60000\r\n";

async fn takes_no_lock(head: &str) {
    let setup = Setup { allow_delete: true, ..Setup::default() };
    let stage = Stage::with(Backend::Memory, setup).await;
    let mut other = stage.client().await;
    other.take("/", "theirs").await;
    let mut browser = stage.client().await;
    browser.send(format!("{head} HTTP/1.1\r\nHost: localhost\r\n\r\n{LOCKS}").as_bytes()).await;
    let told = browser.ended().await;
    assert!(told.lines().last().is_some_and(|line| line.starts_with("-ERR ")), "{told}");
    assert!(!other.is_locked("k").await, "{head} took the lock; it was told {told}");
    assert!(other.is_locked("/").await, "{head} ended a lock; it was told {told}");
}

#[tokio::test]
async fn a_post_with_commands_in_its_body_takes_no_lock() {
    takes_no_lock("POST /").await;
}

#[tokio::test]
async fn a_get_takes_no_lock() {
    takes_no_lock("GET /").await;
}

#[tokio::test]
async fn an_options_takes_no_lock() {
    takes_no_lock("OPTIONS /").await;
}

#[tokio::test]
async fn a_put_takes_no_lock() {
    takes_no_lock("PUT /").await;
}
