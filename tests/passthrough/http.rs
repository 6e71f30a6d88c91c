//! HTTP: the exact bytes that daprd receives, and how answers stream back.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::stand_in::{Front, Seen, StandIn, channel_body, data, frame, many, nowhere, send};

const MEGABYTE: usize = 1024 * 1024;
const LONG: Duration = Duration::from_secs(10);

/// Sends bytes to the front. Returns those that arrive behind it, up to `end`,
/// and those that come back after `answer` was sent.
async fn on_the_wire(request: &str, end: &str, answer: &str) -> (String, String) {
    let daprd = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::http(daprd.local_addr().unwrap()).await;
    let mut caller = TcpStream::connect(front.address).await.unwrap();
    caller.write_all(request.as_bytes()).await.unwrap();
    let (mut arrived, _) = timeout(LONG, daprd.accept()).await.unwrap().unwrap();
    let request = read_until(&mut arrived, end).await;
    arrived.write_all(answer.as_bytes()).await.unwrap();
    drop(arrived);
    let mut answer = Vec::new();
    timeout(LONG, caller.read_to_end(&mut answer)).await.unwrap().unwrap();
    (request, String::from_utf8(answer).unwrap())
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let mut buffer = [0; 4096];
        let count = timeout(LONG, stream.read(&mut buffer)).await.unwrap().unwrap();
        assert!(count > 0, "ended early: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(read).unwrap()
}

async fn text(answer: Response<hyper::body::Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

#[tokio::test]
async fn path_host_and_headers_arrive_as_they_were_sent() {
    let (request, answer) = on_the_wire(
        "PATCH /v1.0/state/a%2Fb//c%20d/..;x?k=%26&e= HTTP/1.1\r\nhost: app.example\r\n\
         dapr-api-token: t\r\nx-two: 1\r\nx-two: 2\r\ncontent-length: 2\r\n\
         connection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=1\r\n\r\nhi",
        "hi",
        "HTTP/1.1 201 Created\r\nx-answer: a\r\nconnection: x-gone\r\nx-gone: 1\r\n\
         content-length: 3\r\n\r\nyes",
    )
    .await;
    assert_eq!(
        request,
        "PATCH /v1.0/state/a%2Fb//c%20d/..;x?k=%26&e= HTTP/1.1\r\nhost: app.example\r\n\
         dapr-api-token: t\r\nx-two: 1\r\nx-two: 2\r\ncontent-length: 2\r\n\r\nhi"
    );
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert!(answer.contains("x-answer: a\r\n") && answer.ends_with("\r\n\r\nyes"), "{answer}");
    assert!(!answer.contains("x-gone"), "{answer}");
}

#[tokio::test]
async fn a_chunked_body_stays_chunked_also_on_a_get() {
    let (request, _) = on_the_wire(
        "GET /v1.0/x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    )
    .await;
    assert_eq!(
        request,
        "GET /v1.0/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    );
}

#[tokio::test]
async fn an_http_1_0_caller_gets_an_answer_that_it_can_read() {
    let (request, answer) = on_the_wire(
        "GET /v1.0/x HTTP/1.0\r\n\r\n",
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    )
    .await;
    assert!(request.starts_with("GET /v1.0/x HTTP/1.1\r\nhost: 127.0.0.1:"), "{request}");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhi"), "{answer}");
}

#[tokio::test]
async fn http2_callers_keep_their_authority_as_host() {
    let mut daprd = StandIn::start().await;
    let front = Front::http(daprd.address).await;
    daprd.answer(Response::new(Body::from("ok"))).await;
    let request =
        Request::get(format!("http://{}/v1.0/metadata", front.address)).body(Body::empty());
    assert_eq!(text(send(true, request.unwrap()).await).await, "ok");
    let head = daprd.head().await;
    assert_eq!(head.headers["host"], front.address.to_string());
    assert!(!head.headers.contains_key("transfer-encoding"), "{:?}", head.headers);
}

#[tokio::test]
async fn an_answer_arrives_piece_by_piece() {
    let daprd = StandIn::start().await;
    let front = Front::http(daprd.address).await;
    let (to_caller, body) = channel_body();
    daprd.answer(Response::new(body)).await;
    let request = Request::get(format!("http://{}/v1.0/stream", front.address));
    let mut answer = send(false, request.body(Body::empty()).unwrap()).await;
    for piece in ["event: 1\n\n", "event: 2\n\n"] {
        to_caller.send(data(piece)).await.unwrap();
        assert_eq!(frame(&mut answer).await.unwrap().into_data().unwrap(), piece);
    }
    drop(to_caller);
    assert!(frame(&mut answer).await.is_none());
}

#[tokio::test]
async fn ten_megabytes_go_through_both_ways() {
    let mut daprd = StandIn::start().await;
    let front = Front::http(daprd.address).await;
    let chunk = Bytes::from(vec![7_u8; MEGABYTE]);
    daprd.answer(Response::new(many(chunk.clone(), 10))).await;
    let request = Request::post(format!("http://{}/v1.0/invoke", front.address));
    let answer = tokio::spawn(send(false, request.body(many(chunk, 10)).unwrap()));
    daprd.head().await;
    assert_eq!(daprd.body().await.0.len(), 10 * MEGABYTE);
    assert_eq!(text(answer.await.unwrap()).await.len(), 10 * MEGABYTE);
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_its_request_along() {
    let mut daprd = StandIn::start().await;
    let front = Front::http(daprd.address).await;
    let request = Request::get(format!("http://{}/v1.0/slow", front.address));
    let calling = tokio::spawn(send(false, request.body(Body::empty()).unwrap()));
    daprd.head().await;
    assert!(matches!(daprd.next().await, Seen::EndOfRequest));
    calling.abort();
    assert!(matches!(daprd.next().await, Seen::CallDropped));
}

async fn refusal(front: &Front, request: http::request::Builder) -> (u16, serde_json::Value) {
    let request = request.uri(format!("http://{}/v1.0/x", front.address));
    let answer = send(false, request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&text(answer).await).unwrap())
}

#[tokio::test]
async fn a_daprd_that_is_down_is_a_json_error_that_names_it() {
    let down = nowhere().await;
    let front = Front::http(down).await;
    let (status, error) = refusal(&front, Request::builder()).await;
    assert_eq!((status, error["errorCode"].as_str()), (503, Some("ERR_DAPRD_UNREACHABLE")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&format!("http://{down} (--daprd-http-endpoint)")), "{message}");
}

#[tokio::test]
async fn what_is_no_http_answer_is_a_bad_gateway() {
    let (_, answer) = on_the_wire(
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        "\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("ERR_DAPRD_BROKEN_RESPONSE"), "{answer}");
}

/// HTTP/1 has no pings, so a request to a suspended daprd was once never answered.
#[tokio::test]
async fn a_daprd_that_answers_nothing_is_a_bad_gateway() {
    // The kernel accepts connections, and nobody reads.
    let suspended = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::http(suspended.local_addr().unwrap()).await;
    let (status, error) = refusal(&front, Request::builder()).await;
    assert_eq!((status, error["errorCode"].as_str()), (502, Some("ERR_DAPRD_BROKEN_RESPONSE")));
    assert!(error["message"].as_str().unwrap().contains("health"), "{error}");
}

#[tokio::test]
async fn a_change_of_protocol_is_refused_and_an_offer_of_http2_passed_over() {
    let mut daprd = StandIn::start().await;
    let front = Front::http(daprd.address).await;
    let websocket =
        Request::builder().header("connection", "upgrade").header("upgrade", "websocket");
    let (status, error) = refusal(&front, websocket).await;
    assert_eq!((status, error["errorCode"].as_str()), (501, Some("ERR_UPGRADE_NOT_SUPPORTED")));
    assert!(error["message"].as_str().unwrap().contains("websocket"), "{error}");

    daprd.answer(Response::new(Body::from("ok"))).await;
    let offer = Request::get(format!("http://{}/v1.0/x", front.address))
        .header("connection", "upgrade, http2-settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQAAP__");
    assert_eq!(text(send(false, offer.body(Body::empty()).unwrap()).await).await, "ok");
    let head = daprd.head().await;
    assert!(!head.headers.contains_key("upgrade"), "{:?}", head.headers);
    assert!(!head.headers.contains_key("http2-settings"), "{:?}", head.headers);
}
