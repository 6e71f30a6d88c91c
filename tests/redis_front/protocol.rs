//! How requests are read.

use crate::{
    client::{NULL, Value, bulk, int, ok, request},
    scripts::RELEASE,
    stage::{Backend, Stage},
};

on_each_backend!(
    pipelined_requests_with_one_key_are_carried_out_in_their_order,
    pipelined_requests_with_many_keys_are_answered_in_their_order,
);

async fn pipelined_requests_with_one_key_are_carried_out_in_their_order(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    let pipeline = [
        request(&["SET", "k", "a", "NX", "PX", "60000"]),
        request(&["SET", "k", "b", "NX", "PX", "60000"]),
        request(&["EVAL", RELEASE, "1", "k", "b"]),
        request(&["EVAL", RELEASE, "1", "k", "a"]),
        request(&["EXISTS", "k", "other"]),
        request(&["SET", "k", "b", "NX", "PX", "60000"]),
        request(&["GET", "k"]),
    ];
    client.send(&pipeline.concat()).await;
    for expected in [ok(), NULL, int(0), int(1), int(0), ok(), bulk("b")] {
        assert_eq!(client.reply().await, expected);
    }
}

async fn pipelined_requests_with_many_keys_are_answered_in_their_order(backend: Backend) {
    // More than are carried out at a time.
    const COUNT: usize = 300;
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    let mut pipeline = Vec::new();
    for n in 0..COUNT {
        let (key, value) = (format!("k{n}"), format!("v{n}"));
        pipeline.extend(request(&["SET", &key, &value, "NX", "PX", "60000"]));
        pipeline.extend(request(&["ECHO", &key]));
        pipeline.extend(request(&["GET", &key]));
    }
    client.send(&pipeline).await;
    for n in 0..COUNT {
        assert_eq!(client.reply().await, ok(), "{n}");
        assert_eq!(client.reply().await, bulk(&format!("k{n}")));
        assert_eq!(client.reply().await, bulk(&format!("v{n}")));
    }
}

#[tokio::test]
async fn nothing_is_carried_out_between_multi_and_its_end() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for end in ["EXEC", "DISCARD"] {
        let take = request(&["SET", "k", "v", "NX", "PX", "60000"]);
        client.send(&[request(&["MULTI"]), take, request(&[end])].concat()).await;
        for command in ["MULTI", "SET", end] {
            let reply = client.reply().await.error();
            assert!(reply.contains("MULTI") || reply.contains(end), "{command}: {reply}");
        }
        assert!(!client.is_locked("k").await, "{end}");
    }
    assert_eq!(client.take("k", "v").await, ok());
}

#[tokio::test]
async fn a_request_may_come_in_two_parts_cut_anywhere() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let whole = |key: usize| request(&["SET", &format!("k{key:02}"), "v", "NX", "PX", "60000"]);
    for cut in 1..whole(0).len() {
        let request = whole(cut);
        client.send(&request[..cut]).await;
        stage.settled().await;
        client.send(&request[cut..]).await;
        assert_eq!(client.reply().await, ok(), "cut after {cut} bytes");
    }
}

#[tokio::test]
async fn a_request_may_come_byte_by_byte() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    for byte in request(&["SET", "k", "v", "NX", "PX", "60000"]) {
        client.send(&[byte]).await;
    }
    assert_eq!(client.reply().await, ok());
}

#[tokio::test]
async fn a_line_of_words_is_a_request() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send(b"\r\nset k  v nx px 60000\r\nGET k\nPING\r\n").await;
    for expected in [ok(), bulk("v"), Value::Simple("PONG".into())] {
        assert_eq!(client.reply().await, expected);
    }
}

#[tokio::test]
async fn an_empty_array_is_no_request() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    client.send(b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n").await;
    assert_eq!(client.reply().await, Value::Simple("PONG".into()));
}

#[tokio::test]
async fn what_is_no_request_ends_the_connection_with_an_error() {
    let stage = Stage::memory().await;
    for wrong in ["*x\r\n", "*1\r\n+PING\r\n", "*1\r\n$-1\r\n", "*1\r\n$4\r\nPINGING\r\n"] {
        let mut client = stage.client().await;
        client.send(format!("{wrong}*1\r\n$4\r\nPING\r\n").as_bytes()).await;
        let reply = client.ended().await;
        assert!(reply.starts_with("-ERR Protocol error: "), "{wrong:?}: {reply:?}");
        assert_eq!(reply.lines().count(), 1, "{wrong:?}: {reply:?}");
    }
}

#[tokio::test]
async fn what_came_before_a_protocol_error_is_answered() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let pipeline = [request(&["SET", "k", "v", "NX", "PX", "60000"]), b"*1\r\n?".to_vec()];
    client.send(&pipeline.concat()).await;
    let reply = client.ended().await;
    assert!(reply.starts_with("+OK\r\n-ERR Protocol error: "), "{reply}");
    assert!(stage.client().await.is_locked("k").await);
}

#[tokio::test]
async fn nothing_is_read_after_quit() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let set = request(&["SET", "k", "v", "NX", "PX", "60000"]);
    client.send(&[request(&["QUIT"]), set].concat()).await;
    assert_eq!(client.ended().await, "+OK\r\n");
    assert!(!stage.client().await.is_locked("k").await);
}
