//! The calls beside lock calls: health, metadata, the token, other calls.

use http::Method;
use leasehold_proto::{dapr::GetMetadataRequest, locks::LockRequest};
use leasehold_sidecar::{Hooks, Options, api::auth::Token};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, Request};

use crate::{
    alpha2_grpc::request,
    harness::{Harness, PATIENCE, options},
    unix_sockets::stale_socket,
};

async fn with_token() -> Harness {
    let options = Options { token: Token::new(Some("secret")), ..options() };
    Harness::with(options, Hooks::default()).await
}

#[tokio::test]
async fn health_and_metadata_are_answered_so_that_sdks_start() {
    let harness = Harness::start().await;
    for path in ["/v1.0/healthz", "/v1.0/healthz/outbound", "/v1.0/healthz?appid=app"] {
        assert_eq!(harness.call(Method::GET, path, "").await.status, 204, "{path}");
    }
    let encoded = harness.call(Method::GET, "/v1.0/healthz?appid=a%70p", "").await;
    assert_eq!(encoded.status, 204, "percent-encoded");
    let other = harness.call(Method::GET, "/v1.0/healthz?appid=other", "").await;
    assert_eq!(other.error(), (500, "ERR_HEALTH_APPID_NOT_MATCH".into()));
    let metadata = harness.call(Method::GET, "/v1.0/metadata", "").await;
    assert_eq!(metadata.status, 200);
    let metadata = metadata.json();
    assert_eq!(metadata["id"], "app");
    let expected = json!([{ "name": "mem", "type": "lock.memory", "version": "v1" }]);
    assert_eq!(metadata["components"], expected);
}

// `dapr list` showed the process IDs as 0: `dapr run` adds them in this way.
#[tokio::test]
async fn attributes_that_callers_add_are_among_the_metadata() {
    let harness = Harness::start().await;
    let added = harness.call(Method::PUT, "/v1.0/metadata/cliPID", "4711").await;
    assert_eq!(added.status, 204);
    let metadata = harness.call(Method::GET, "/v1.0/metadata", "").await.json();
    assert_eq!(metadata["extended"]["cliPID"], "4711");
    let over_grpc = harness.dapr().await.get_metadata(GetMetadataRequest {}).await.unwrap();
    assert_eq!(over_grpc.into_inner().extended_metadata["cliPID"], "4711");
}

#[tokio::test]
async fn an_attribute_that_is_too_long_is_refused_with_the_limit() {
    let harness = Harness::start().await;
    for (length, limit) in [(4_097, "4096 bytes"), (100_000, "65536 bytes")] {
        let long = "x".repeat(length);
        let refused = harness.call(Method::PUT, "/v1.0/metadata/key", long).await;
        assert_eq!(refused.error(), (400, "ERR_METADATA_SET".into()));
        let refused = refused.json();
        assert!(refused["message"].as_str().unwrap().contains(limit), "{refused}");
    }
    let metadata = harness.call(Method::GET, "/v1.0/metadata", "").await.json();
    assert!(metadata["extended"]["key"].is_null(), "{metadata}");
}

#[tokio::test]
async fn other_calls_say_that_no_daprd_is_configured() {
    let harness = Harness::start().await;
    let answer = harness.post("/v1.0/publish/bus/topic", "{}").await;
    assert_eq!(answer.error(), (501, "ERR_DAPRD_NOT_CONFIGURED".into()));
    assert!(answer.json()["message"].as_str().unwrap().contains("--daprd-http-endpoint"));
    let misspelt = harness.post("/v1.0-alpha2/lok/mem/lock", "{}").await;
    assert!(misspelt.json()["message"].as_str().unwrap().contains("/lock/STORE/RESOURCE"));
    let mut grpc = tonic::client::Grpc::new(harness.channel().await);
    grpc.ready().await.unwrap();
    let answer = grpc
        .unary(
            Request::new(()),
            http::uri::PathAndQuery::from_static("/dapr.proto.runtime.v1.Dapr/GetState"),
            tonic_prost::ProstCodec::<(), ()>::default(),
        )
        .await
        .unwrap_err();
    assert_eq!(answer.code(), Code::Unimplemented);
    assert!(answer.message().contains("--daprd-grpc-endpoint"), "{answer}");
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_the_allowed_ones() {
    let harness = Harness::start().await;
    for (method, path, allowed) in [
        (Method::PATCH, "/v1.0-alpha2/lock/mem/a/b", &["GET", "POST", "PUT", "DELETE"][..]),
        (Method::POST, "/v1.0-alpha2/locks/mem", &["GET", "DELETE"]),
        (Method::GET, "/v1.0-alpha1/lock/mem", &["POST"]),
        (Method::PUT, "/v1.0-alpha1/unlock/mem", &["POST"]),
        (Method::POST, "/v1.0/metadata", &["GET"]),
    ] {
        let answer = harness.call(method, path, "").await;
        assert_eq!(answer.error(), (405, "ERR_METHOD_NOT_ALLOWED".into()), "{path}");
        let header = answer.headers["allow"].to_str().unwrap();
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        for method in allowed {
            assert!(header.contains(method) && message.contains(method), "{header}: {message}");
        }
    }
}

#[tokio::test]
async fn http_asks_for_the_token_on_all_but_health() {
    let harness = with_token().await;
    for path in ["/v1.0/healthz", "/v1.0/healthz/outbound"] {
        assert_eq!(harness.call(Method::GET, path, "").await.status, 204);
    }
    for (method, path) in [
        (Method::POST, "/v1.0-alpha1/lock/mem"),
        (Method::POST, "/v1.0-alpha2/lock/mem/r"),
        (Method::GET, "/v1.0/metadata"),
        (Method::POST, "/v1.0/healthz"),
        (Method::POST, "/v1.0/publish/bus/topic"),
    ] {
        for token in [None, Some("wrong"), Some("secre"), Some("secrets"), Some("")] {
            let headers: Vec<_> =
                token.map(|token| ("dapr-api-token", token)).into_iter().collect();
            let answer = harness.call_with(method.clone(), path, &headers, "").await;
            assert_eq!(answer.status, 401, "{path} {token:?}");
            assert_eq!(answer.body, "invalid api token\n");
        }
    }
    let headers = [("dapr-api-token", "secret")];
    let answer = harness.call_with(Method::POST, "/v1.0-alpha2/lock/mem/r", &headers, "").await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn grpc_asks_for_the_token_on_every_call() {
    let harness = with_token().await;
    let mut dapr = harness.dapr().await;
    let refused = dapr.get_metadata(GetMetadataRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let mut locks = harness.locks().await;
    let mut wrong: Request<LockRequest> = Request::new(request("r"));
    wrong.metadata_mut().insert("dapr-api-token", "wrong".parse().unwrap());
    assert_eq!(locks.lock(wrong).await.unwrap_err().code(), Code::Unauthenticated);
    let mut right = Request::new(request("r"));
    right.metadata_mut().insert("dapr-api-token", "secret".parse().unwrap());
    locks.lock(right).await.unwrap();
}

#[tokio::test]
async fn the_content_type_of_connect_clients_is_taken() {
    let harness = Harness::start().await;
    let client: hyper_util::client::legacy::Client<_, axum::body::Body> =
        hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
            .http2_only(true)
            .build_http();
    let call = http::Request::post(format!(
        "http://{}/dapr.proto.runtime.v1.Dapr/GetMetadata",
        harness.grpc
    ))
    .header("content-type", "application/grpc+proto")
    .header("te", "trailers")
    .body(axum::body::Body::from(vec![0; 5]))
    .unwrap();
    let answer = client.request(call).await.unwrap();
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("application/grpc"));
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn the_grpc_port_speaks_http2_only() {
    let harness = Harness::start().await;
    let mut wire = TcpStream::connect(harness.grpc).await.unwrap();
    wire.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    // The connection is closed, with an error if the request was left unread.
    let _ = timeout(PATIENCE, wire.read_to_end(&mut said)).await.unwrap();
    assert!(!said.starts_with(b"HTTP/1"), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn endless_headers_are_cut_off() {
    let harness = Harness::start().await;
    let mut endless = TcpStream::connect(harness.http).await.unwrap();
    endless.write_all(b"GET /v1.0/healthz HTTP/1.1\r\nx: ").await.unwrap();
    let chunk = vec![b'a'; 128 * 1024];
    let _ = endless.write_all(&chunk).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, endless.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn unix_sockets_are_served_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        listen: leasehold_sidecar::options::Listen::Sockets(folder.path().to_owned()),
        ..options()
    };
    let stores = leasehold_sidecar::stores::Stores::default();
    let stop = tokio_util::sync::CancellationToken::new();
    let start =
        || leasehold_sidecar::Sidecar::start(options.clone(), stores.clone(), Hooks::default());
    let sidecar = start().await.unwrap();
    let socket = folder.path().join("dapr-app-http.socket");
    let mut client = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let request = b"GET /v1.0/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(start().await.is_err(), "a live socket is not taken over");
    stop.cancel();
    sidecar.run(stop).await;
    assert!(!socket.exists() && !folder.path().join("dapr-app-grpc.socket").exists());
    stale_socket(&socket);
    assert!(start().await.is_ok(), "a dead one is replaced");
}

/// daprd accepts as many as fit into its buffer; here more than 100 were once refused.
#[tokio::test]
async fn hundreds_of_headers_are_taken() {
    let harness = Harness::start().await;
    let mut stream = TcpStream::connect(harness.http).await.unwrap();
    let headers: String = (0..500).map(|n| format!("x-{n}: y\r\n")).collect();
    let request = format!(
        "GET /v1.0/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}
