//! Lock calls of pages in a browser.

use http::Method;
use leasehold_proto::locks::{LockRequest, locks_client::LocksClient};
use leasehold_sidecar::{Hooks, Options, options::Listen};
use tonic::{
    Code, Request,
    transport::{Channel, Endpoint},
};

use crate::harness::{Answer, Harness, STORE, options, reason};

const PAGE: &str = "http://evil.example";
const ALPHA1: &str = r#"{"resourceId":"r","lockOwner":"o","expiryInSeconds":5}"#;
/// Every call with which a page could do harm.
const CALLS: [(Method, &str, &str); 6] = [
    (Method::POST, "/v1.0-alpha2/lock/mem/r", "{}"),
    (Method::PUT, "/v1.0-alpha2/lock/mem/r", r#"{"lockID":"x"}"#),
    (Method::DELETE, "/v1.0-alpha2/lock/mem/r", r#"{"force":true}"#),
    (Method::POST, "/v1.0-alpha1/lock/mem", ALPHA1),
    (Method::POST, "/v1.0-alpha1/unlock/mem", ALPHA1),
    (Method::OPTIONS, "/v1.0-alpha2/lock/mem/r", ""),
];

fn is_forbidden(answer: &Answer) -> bool {
    answer.status == 403 && answer.error().1 == "ERR_FORBIDDEN_ORIGIN"
}

/// Trap: sidecar 55
#[tokio::test]
async fn a_page_of_any_origin_can_neither_take_nor_end_a_lock() {
    let harness = Harness::start().await;
    for (method, path, body) in CALLS {
        for header in [
            ("origin", PAGE),
            ("origin", "null"),
            ("origin", "http://localhost:3500"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = harness.call_with(method.clone(), path, &[header], body).await;
            assert!(is_forbidden(&answer), "{method} {path} {header:?}: {answer:?}");
        }
    }
    assert_eq!(harness.memory.records(), 0);
}

/// Trap: sidecar 55
#[tokio::test]
async fn a_name_that_resolves_to_loopback_does_not_help_a_page() {
    let harness = Harness::start().await;
    for (method, path, body) in CALLS {
        for host in ["evil.example", "evil.example:3500", "0.0.0.0:3500", "localhost.evil"] {
            let headers = [("host", host), ("sec-fetch-site", "same-origin")];
            let answer = harness.call_with(method.clone(), path, &headers, body).await;
            assert!(is_forbidden(&answer), "{method} {path} {host:?}: {answer:?}");
        }
    }
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn clients_that_are_no_browsers_are_served() {
    let harness = Harness::start().await;
    for (n, headers) in [
        &[][..],
        &[("host", "localhost:3500")],
        &[("host", "LOCALHOST.")],
        &[("host", "app.localhost:3500")],
        &[("host", "127.0.0.1")],
        &[("host", "[::1]:3500")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")],
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/v1.0-alpha2/lock/mem/r{n}");
        let answer = harness.call_with(Method::POST, &path, headers, "{}").await;
        assert_eq!(answer.status, 200, "{headers:?}: {answer:?}");
    }
}

#[tokio::test]
async fn health_and_what_is_passed_on_are_not_touched() {
    let harness = Harness::start().await;
    let headers = [("origin", PAGE), ("host", "evil.example")];
    let health = harness.call_with(Method::GET, "/v1.0/healthz", &headers, "").await;
    assert_eq!(health.status, 204);
    let other = harness.call_with(Method::GET, "/v1.0/state/s/k", &headers, "").await;
    assert_eq!(other.error(), (501, "ERR_DAPRD_NOT_CONFIGURED".into()));
}

#[tokio::test]
async fn a_sidecar_that_others_can_reach_has_names_that_it_does_not_know() {
    let listen =
        Listen::Ports { addresses: vec!["0.0.0.0".parse().unwrap()], grpc: 0, http: 0 };
    let harness = Harness::with(Options { listen, ..options() }, Hooks::default()).await;
    let path = "/v1.0-alpha2/lock/mem/r";
    let named = [("host", "sidecar.internal")];
    let answer = harness.call_with(Method::POST, path, &named, "{}").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = [("host", "sidecar.internal"), ("origin", PAGE)];
    assert!(is_forbidden(&harness.call_with(Method::POST, path, &page, "{}").await));
}

/// A channel whose calls are to this authority.
async fn channel(harness: &Harness, authority: &str) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", harness.grpc)).unwrap();
    let origin = format!("http://{authority}").parse().unwrap();
    endpoint.origin(origin).connect().await.unwrap()
}

fn lock() -> LockRequest {
    LockRequest { store_name: STORE.into(), resource_id: "r".into(), ..Default::default() }
}

/// Trap: sidecar 55
#[tokio::test]
async fn grpc_calls_are_refused_alike() {
    let harness = Harness::start().await;
    for authority in ["evil.example", "evil.example:50001", "10.0.0.1"] {
        let mut locks = LocksClient::new(channel(&harness, authority).await);
        let refused = locks.lock(lock()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{authority}: {refused:?}");
        assert_eq!(reason(&refused, "").0, "FORBIDDEN_ORIGIN");
    }
    let mut call = Request::new(lock());
    call.metadata_mut().insert("origin", PAGE.parse().unwrap());
    let refused = harness.locks().await.lock(call).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut dapr = leasehold_proto::dapr::dapr_client::DaprClient::new(
        channel(&harness, "evil.example").await,
    );
    let refused = dapr.try_lock_alpha1(leasehold_proto::dapr::TryLockRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(harness.memory.records(), 0);
    for (n, authority) in
        ["localhost:50001", "127.0.0.1:50001", "[::1]:50001"].into_iter().enumerate()
    {
        let mut locks = LocksClient::new(channel(&harness, authority).await);
        let request = LockRequest { resource_id: format!("r{n}"), ..lock() };
        locks.lock(request).await.unwrap();
    }
}
