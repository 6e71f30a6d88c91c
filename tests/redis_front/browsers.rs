//! A page in a browser can send HTTP requests to a front on loopback, but cannot take a lock
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
    let reply = browser.ended().await;
    assert!(reply.lines().last().is_some_and(|line| line.starts_with("-ERR ")), "{reply}");
    assert!(!other.is_locked("k").await, "{head} took the lock; it got {reply}");
    assert!(other.is_locked("/").await, "{head} ended a lock; it got {reply}");
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
