//! The bytes of each kind of reply, in both versions of the protocol.

use crate::{
    client::{Client, bulk, ok, request},
    scripts::RELEASE,
    stage::Stage,
};

/// Replies that are the same in both.
async fn plain_replies(client: &mut Client) {
    for (words, expected) in [
        (&["PING"] as &[&str], "+PONG\r\n"),
        (&["PING", "é"], "$2\r\né\r\n"),
        (&["ECHO", ""], "$0\r\n\r\n"),
        (&["SELECT", "0"], "+OK\r\n"),
        (&["SET", "k", "v", "NX", "PX", "60000"], "+OK\r\n"),
        (&["SET", "k", "v", "XX", "EX", "60"], "+OK\r\n"),
        (&["GET", "k"], "$1\r\nv\r\n"),
        (&["EXISTS", "k"], ":1\r\n"),
        (&["EVAL", RELEASE, "1", "k", "v"], ":1\r\n"),
        (&["PTTL", "k"], ":-2\r\n"),
        (&["SCRIPT", "EXISTS", "0"], "*1\r\n:0\r\n"),
        (&["COMMAND"], "*0\r\n"),
        (&["SELECT", "x"], "-ERR value is not an integer or out of range\r\n"),
        (&["GET"], "-ERR wrong number of arguments for 'get' command\r\n"),
    ] {
        assert_eq!(client.ask_raw(words).await, expected, "{words:?}");
    }
}

#[tokio::test]
async fn the_replies_of_resp2() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    plain_replies(&mut client).await;
    assert_eq!(client.ask_raw(&["GET", "k"]).await, "$-1\r\n");
    assert_eq!(client.ask_raw(&["SET", "k", "v", "XX", "PX", "1000"]).await, "$-1\r\n");
    assert_eq!(client.ask_raw(&["CLIENT", "GETNAME"]).await, "$-1\r\n");
    assert_eq!(client.ask_raw(&["COMMAND", "DOCS"]).await, "*0\r\n");
    let hello = client.ask_raw(&["HELLO", "2"]).await;
    assert!(hello.starts_with("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello}");
    assert!(hello.contains("$5\r\nproto\r\n:2\r\n"), "{hello}");
}

#[tokio::test]
async fn the_replies_of_resp3() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let hello = client.ask_raw(&["HELLO", "3"]).await;
    assert!(hello.starts_with("%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello}");
    assert!(hello.contains("$5\r\nproto\r\n:3\r\n"), "{hello}");
    plain_replies(&mut client).await;
    assert_eq!(client.ask_raw(&["GET", "k"]).await, "_\r\n");
    assert_eq!(client.ask_raw(&["SET", "k", "v", "XX", "PX", "1000"]).await, "_\r\n");
    assert_eq!(client.ask_raw(&["CLIENT", "GETNAME"]).await, "_\r\n");
    assert_eq!(client.ask_raw(&["COMMAND", "DOCS"]).await, "%0\r\n");
}

#[tokio::test]
async fn each_reply_of_a_pipeline_is_in_the_protocol_that_was_spoken_then() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let get = request(&["GET", "k"]);
    let pipeline = [&get[..], &request(&["HELLO", "3"]), &get, &request(&["HELLO", "2"]), &get];
    client.send(&[pipeline.concat(), request(&["QUIT"])].concat()).await;
    let reply = client.ended().await;
    assert!(reply.starts_with("$-1\r\n%7\r\n"), "{reply}");
    assert!(reply.contains("_\r\n*14\r\n"), "{reply}");
    assert!(reply.ends_with("$-1\r\n+OK\r\n"), "{reply}");
}

#[tokio::test]
async fn commands_and_options_are_read_in_any_case() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(&["sEt", "k", "v", "nX", "pX", "60000"]).await, ok());
    assert_eq!(client.ask(&["get", "k"]).await, bulk("v"));
}
