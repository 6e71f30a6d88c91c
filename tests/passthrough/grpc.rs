//! gRPC: heads, messages, trailers, resets, both ways.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use leasehold_testkit::proxy::Proxy;
use tokio::time::timeout;

use crate::stand_in::{
    Broken, Front, Seen, StandIn, channel_body, data, frame, headers, many, nowhere, send,
    trailers,
};

const MEGABYTE: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);

fn call(front: &Front, body: Body) -> Request<Body> {
    Request::post(format!("http://{}/dapr.proto.runtime.v1.Dapr/X", front.address))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .header("grpc-timeout", "7S")
        .header("x-many", "1")
        .header("x-many", "2")
        .header("x-raw-bin", "AAEC")
        .body(body)
        .unwrap()
}

fn answer(body: Body) -> Response<Body> {
    Response::builder()
        .header("content-type", "application/grpc+proto")
        .header("x-initial", "i")
        .body(body)
        .unwrap()
}

async fn whole(answer: Response<Incoming>) -> (Bytes, HeaderMap) {
    let body = answer.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    (body.to_bytes(), trailers)
}

fn status(head: &HeaderMap) -> (&str, String) {
    let text =
        |name| head.get(name).map_or("", |value: &http::HeaderValue| value.to_str().unwrap());
    (text("grpc-status"), text("grpc-message").replace("%20", " "))
}

#[tokio::test]
async fn a_unary_call_arrives_and_is_answered_unchanged() {
    let mut daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (sender, body) = channel_body();
    sender.send(data("reply")).await.unwrap();
    sender.send(trailers(&[("grpc-status", "0"), ("x-trailing-bin", "/w==")])).await.unwrap();
    drop(sender);
    daprd.answer(answer(body)).await;

    let reply = send(true, call(&front, Body::from("\0\0\0\0\x01q"))).await;

    let head = daprd.head().await;
    assert_eq!(
        (head.method.as_str(), head.uri.path()),
        ("POST", "/dapr.proto.runtime.v1.Dapr/X")
    );
    assert_eq!(
        head.headers,
        headers(&[
            ("content-type", "application/grpc+proto"),
            ("te", "trailers"),
            ("grpc-timeout", "7S"),
            ("x-many", "1"),
            ("x-many", "2"),
            ("x-raw-bin", "AAEC"),
        ])
        .into_iter()
        .fold(headers(&[("content-length", "6")]), append),
    );
    assert_eq!(daprd.body().await.0, b"\0\0\0\0\x01q");
    assert_eq!(reply.headers()["content-type"], "application/grpc+proto");
    assert_eq!(reply.headers()["x-initial"], "i");
    assert!(!reply.headers().contains_key("content-length"), "{:?}", reply.headers());
    let (message, trailing) = whole(reply).await;
    assert_eq!(message, "reply");
    assert_eq!(trailing, headers(&[("grpc-status", "0"), ("x-trailing-bin", "/w==")]));
}

fn append(
    mut all: HeaderMap,
    (name, value): (Option<http::HeaderName>, http::HeaderValue),
) -> HeaderMap {
    let name = name.unwrap_or_else(|| "x-many".parse().unwrap());
    all.append(name, value);
    all
}

#[tokio::test]
async fn a_trailers_only_answer_stays_one() {
    let daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let mut refusal = answer(Body::empty());
    refusal
        .headers_mut()
        .extend(headers(&[("grpc-status", "5"), ("grpc-message", "no%20such")]));
    daprd.answer(refusal).await;

    let reply = send(true, call(&front, Body::empty())).await;

    assert_eq!(status(reply.headers()), ("5", "no such".to_owned()));
    assert!(!reply.headers().contains_key("content-length"), "{:?}", reply.headers());
    assert!(http_body::Body::is_end_stream(reply.body()), "sent more than headers");
}

#[tokio::test]
async fn both_directions_of_a_stream_flow_message_by_message() {
    let mut daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (to_daprd, request_body) = channel_body();
    let (to_caller, answer_body) = channel_body();
    daprd.answer(answer(answer_body)).await;

    let mut reply = send(true, call(&front, request_body)).await;
    daprd.head().await;
    for turn in ["one", "two", "three"] {
        to_daprd.send(data(turn)).await.unwrap();
        assert!(matches!(daprd.next().await, Seen::Data(seen) if seen == turn));
        to_caller.send(data(turn)).await.unwrap();
        assert_eq!(frame(&mut reply).await.unwrap().into_data().unwrap(), turn);
    }
    // Half-closed by the caller: the answer goes on.
    drop(to_daprd);
    assert!(matches!(daprd.next().await, Seen::EndOfRequest));
    to_caller.send(data("last")).await.unwrap();
    assert_eq!(frame(&mut reply).await.unwrap().into_data().unwrap(), "last");
    to_caller.send(trailers(&[("grpc-status", "0")])).await.unwrap();
    let ending = frame(&mut reply).await.unwrap().into_trailers().unwrap();
    assert_eq!(ending["grpc-status"], "0");
}

#[tokio::test]
async fn ten_megabytes_go_through_both_ways() {
    let mut daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let chunk = Bytes::from(vec![7_u8; MEGABYTE]);
    daprd.answer(answer(many(chunk.clone(), 10))).await;
    let reply = tokio::spawn(send(true, call(&front, many(chunk, 10))));
    daprd.head().await;
    let (sent, _) = daprd.body().await;
    assert!(sent.len() == 10 * MEGABYTE && sent.iter().all(|byte| *byte == 7));
    let (got, _) = whole(reply.await.unwrap()).await;
    assert!(got.len() == 10 * MEGABYTE && got.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_no_other() {
    let daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let chunk = Bytes::from(vec![7_u8; MEGABYTE]);
    let mut unread = Vec::new();
    for _ in 0..16 {
        daprd.answer(answer(many(chunk.clone(), 16))).await;
        unread.push(send(true, call(&front, Body::empty())).await);
    }
    daprd.answer(answer(many(chunk, 10))).await;
    let reply = send(true, call(&front, Body::empty())).await;
    let (got, _) = timeout(PATIENCE, whole(reply)).await.expect("no answer beside the others");
    assert_eq!(got.len(), 10 * MEGABYTE);
}

#[tokio::test]
async fn a_connection_that_went_dark_is_replaced() {
    let daprd = StandIn::start().await;
    let proxy = Proxy::start(daprd.address).await;
    let front = Front::grpc(proxy.address().parse().unwrap()).await;
    daprd.answer(answer(Body::empty())).await;
    send(true, call(&front, Body::empty())).await;
    proxy.vanish();
    let lost = send(true, call(&front, Body::empty())).await;
    assert_eq!(status(lost.headers()).0, "14");
    daprd.answer(answer(Body::empty())).await;
    let reply = send(true, call(&front, Body::empty())).await;
    assert_eq!(reply.headers()["x-initial"], "i");
}

#[tokio::test]
async fn a_caller_that_gives_up_before_the_answer_cancels_the_call() {
    let mut daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (_open, body) = channel_body();
    let calling = tokio::spawn(send(true, call(&front, body)));
    daprd.head().await;
    calling.abort();
    // Either side of the stream may report first.
    assert!(matches!(daprd.next().await, Seen::CallDropped | Seen::RequestBroken));
}

#[tokio::test]
async fn a_caller_that_gives_up_in_mid_stream_cancels_the_call() {
    let mut daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (to_daprd, request_body) = channel_body();
    let (to_caller, answer_body) = channel_body();
    daprd.answer(answer(answer_body)).await;
    let reply = send(true, call(&front, request_body)).await;
    daprd.head().await;
    drop(reply);
    drop(to_daprd);
    timeout(Duration::from_secs(10), to_caller.closed())
        .await
        .expect("the stand-in still sends to nobody");
}

#[tokio::test]
async fn a_reset_by_daprd_reaches_the_caller_as_one() {
    let daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (to_caller, body) = channel_body();
    daprd.answer(answer(body)).await;
    let mut reply = send(true, call(&front, Body::empty())).await;
    to_caller.send(data("begun")).await.unwrap();
    assert_eq!(frame(&mut reply).await.unwrap().into_data().unwrap(), "begun");
    to_caller.send(Err(Broken)).await.unwrap();
    let broken = reply.body_mut().frame().await.unwrap().unwrap_err();
    let reset =
        std::error::Error::source(&broken).unwrap().downcast_ref::<h2::Error>().unwrap();
    assert!(reset.is_reset() && reset.is_remote(), "{reset:?}");
}

#[tokio::test]
async fn a_daprd_lost_in_mid_stream_is_unavailable_and_named() {
    let daprd = StandIn::start().await;
    let front = Front::grpc(daprd.address).await;
    let (to_caller, body) = channel_body();
    daprd.answer(answer(body)).await;
    let mut reply = send(true, call(&front, Body::empty())).await;
    to_caller.send(data("begun")).await.unwrap();
    assert!(frame(&mut reply).await.unwrap().is_data());
    daprd.kill();
    let ending = frame(&mut reply).await.unwrap().into_trailers().unwrap();
    let (code, message) = status(&ending);
    assert_eq!(code, "14");
    assert!(message.contains("--daprd-grpc-endpoint"), "{message}");
}

#[tokio::test]
async fn a_daprd_that_is_down_is_unavailable_and_named() {
    let down = nowhere().await;
    let front = Front::grpc(down).await;
    let reply = send(true, call(&front, Body::from("q"))).await;
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["content-type"]),
        (200, &"application/grpc".parse().unwrap())
    );
    let (code, message) = status(reply.headers());
    assert_eq!(code, "14");
    assert!(message.contains(&down.to_string()), "{message}");
    assert!(message.contains("--daprd-grpc-endpoint"), "{message}");
}

#[tokio::test]
async fn a_daprd_that_came_back_is_reached_again() {
    let first = StandIn::start().await;
    let address = first.address;
    let front = Front::grpc(address).await;
    first.answer(answer(Body::empty())).await;
    send(true, call(&front, Body::empty())).await;
    first.kill();
    let reply = loop {
        let reply = send(true, call(&front, Body::empty())).await;
        if status(reply.headers()).0 == "14" {
            break reply;
        }
    };
    drop(reply);
    let second = StandIn::start_at(address).await;
    second.answer(answer(Body::empty())).await;
    let reply = send(true, call(&front, Body::empty())).await;
    assert_eq!(reply.headers()["x-initial"], "i");
}
