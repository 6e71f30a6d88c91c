//! The app is notified of lost locks that have no stream.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
    serve::Listener,
};
use leasehold_proto::locks::{
    LockLost, LockRequest,
    lock_events_server::{LockEvents, LockEventsServer},
};
use leasehold_sidecar::{
    AppProtocol, Hooks, Options,
    api::auth::Token,
    app::{
        client::AppChannel,
        health::AppProbe as _,
        probe::{GrpcProbe, HttpProbe},
    },
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{Instant, sleep},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto, pki_types::PrivateKeyDer},
    server::TlsStream,
};
use tonic::{Request, Response, Status, service::Routes};

use crate::{
    alpha2_grpc::request,
    harness::{Harness, STORE, eventually, options},
};

/// The notices to an app, each with its token.
type Notices = Arc<Mutex<Vec<(Option<String>, Value)>>>;

/// An app that stops with the test.
struct App {
    address: SocketAddr,
    protocol: AppProtocol,
    notices: Notices,
    task: AbortHandle,
}

impl App {
    async fn serve(router: Router, notices: Notices, protocol: AppProtocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = match protocol {
            AppProtocol::Https | AppProtocol::Grpcs => {
                tokio::spawn(axum::serve(TlsListener::new(listener), router).into_future())
            }
            _ => tokio::spawn(axum::serve(listener, router).into_future()),
        };
        Self { address, protocol, notices, task: task.abort_handle() }
    }

    fn channel(&self) -> AppChannel {
        let token = Token::new(Some("app secret"));
        AppChannel::new("127.0.0.1", self.address.port(), self.protocol, token)
    }
}

/// TLS with an untrusted certificate for another name.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    fn new(listener: TcpListener) -> Self {
        let own = rcgen::generate_simple_self_signed(["elsewhere".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![own.cert.der().clone()], key)
                .unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (stream, address) = self.listener.accept().await.unwrap();
        (self.acceptor.accept(stream).await.unwrap(), address)
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An HTTP app that gives these answers in turn, and then repeats the last. The
/// answer 0 means no answer.
async fn http_app(answers: &'static [u16]) -> App {
    app_over(AppProtocol::Http, answers).await
}

async fn app_over(protocol: AppProtocol, answers: &'static [u16]) -> App {
    let notices = Notices::default();
    let record = async move |State(notices): State<Notices>,
                             headers: HeaderMap,
                             body: String| {
        let answer = {
            let mut notices = notices.lock().unwrap();
            let token = headers.get("dapr-api-token").map(|t| t.to_str().unwrap().to_owned());
            notices.push((token, serde_json::from_str(&body).unwrap()));
            answers[(notices.len() - 1).min(answers.len() - 1)]
        };
        if answer == 0 {
            std::future::pending::<()>().await;
        }
        StatusCode::from_u16(answer).unwrap()
    };
    let app =
        Router::new().route("/leasehold/lock-lost", post(record)).with_state(notices.clone());
    App::serve(app, notices, protocol).await
}

#[derive(Clone)]
struct Events(Notices);

#[tonic::async_trait]
impl LockEvents for Events {
    async fn on_lock_lost(&self, request: Request<LockLost>) -> Result<Response<()>, Status> {
        let token =
            request.metadata().get("dapr-api-token").map(|t| t.to_str().unwrap().to_owned());
        let lost = request.into_inner();
        let notices = json!({
            "storeName": lost.store_name, "resourceID": lost.resource_id,
            "namespace": lost.namespace, "lockID": lost.lock_id, "fencingToken": lost.fencing_token, "cause": lost.cause,
        });
        self.0.lock().unwrap().push((token, notices));
        Ok(Response::new(()))
    }
}

async fn grpc_app(protocol: AppProtocol) -> App {
    let notices = Notices::default();
    let service = LockEventsServer::new(Events(notices.clone()));
    App::serve(Routes::new(service).into_axum_router(), notices, protocol).await
}

async fn any_app(protocol: AppProtocol) -> App {
    match protocol {
        AppProtocol::Grpc | AppProtocol::Grpcs => grpc_app(protocol).await,
        _ => app_over(protocol, &[200]).await,
    }
}

async fn sidecar_of(app: &App) -> Harness {
    Harness::with(Options { app: Some(app.channel()), ..options() }, Hooks::default()).await
}

/// Takes a lock that is lost soon. Returns the expected notice.
async fn lose(harness: &Harness, resource: &str) -> Value {
    lose_in(harness, &[], resource).await
}

async fn lose_in(harness: &Harness, namespace: &[&str], resource: &str) -> Value {
    let hold = Duration::from_millis(50).try_into().ok();
    let segments = namespace.iter().map(|&segment| segment.into()).collect();
    let held = LockRequest { max_hold: hold, namespace: segments, ..request(resource) };
    let granted = harness.locks().await.lock(held).await.unwrap().into_inner();
    json!({
        "storeName": STORE, "resourceID": resource, "namespace": namespace,
        "lockID": granted.lock_id,
        "fencingToken": granted.fencing_token, "cause": "max_hold",
    })
}

fn count(app: &App) -> usize {
    app.notices.lock().unwrap().len()
}

#[tokio::test]
async fn an_app_is_notified_over_its_own_protocol_with_its_token() {
    for protocol in [AppProtocol::Http, AppProtocol::H2c, AppProtocol::Grpc] {
        is_notified(any_app(protocol).await).await;
    }
}

#[tokio::test]
async fn a_notice_has_the_namespace_of_the_lock() {
    for protocol in [AppProtocol::Http, AppProtocol::Grpc] {
        let app = any_app(protocol).await;
        let harness = sidecar_of(&app).await;
        let lost = lose_in(&harness, &["shop/1", "ü"], "||k%").await;
        eventually("it is notified", || count(&app) == 1).await;
        assert_eq!(app.notices.lock().unwrap()[0].1, lost);
    }
}

#[tokio::test]
async fn an_app_over_tls_is_notified_whatever_its_certificate() {
    for protocol in [AppProtocol::Https, AppProtocol::Grpcs] {
        is_notified(any_app(protocol).await).await;
    }
}

async fn is_notified(app: App) {
    let harness = sidecar_of(&app).await;
    let lost = lose(&harness, "a/b|c").await;
    eventually("it is notified", || count(&app) == 1).await;
    assert_eq!(app.notices.lock().unwrap()[0], (Some("app secret".into()), lost));
}

#[tokio::test]
async fn the_health_of_an_app_is_asked_for_over_tls() {
    let healthy = Router::new().route("/healthz", get(StatusCode::OK));
    let app = App::serve(healthy, Notices::default(), AppProtocol::Https).await;
    HttpProbe::new(&app.channel(), "/healthz").unwrap().probe().await.unwrap();

    // The app answers, if only with an unknown method.
    let app = grpc_app(AppProtocol::Grpcs).await;
    let why = GrpcProbe::new(&app.channel()).unwrap().probe().await.unwrap_err();
    assert!(why.starts_with("Unimplemented"), "{why}");
}

/// Trap: sidecar 16
#[tokio::test]
async fn an_app_that_fails_is_notified_again_but_not_for_ever() {
    let app = http_app(&[500, 503, 200]).await;
    let harness = sidecar_of(&app).await;
    lose(&harness, "r").await;
    eventually("it is notified", || count(&app) == 3).await;

    let app = http_app(&[500]).await;
    let harness = sidecar_of(&app).await;
    lose(&harness, "r").await;
    eventually("it is tried", || count(&app) == 3).await;
    // Longer than the pause before another try.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(count(&app), 3);
}

#[tokio::test]
async fn an_app_without_the_route_is_asked_once() {
    let app = http_app(&[404]).await;
    let harness = sidecar_of(&app).await;
    lose(&harness, "r").await;
    eventually("it is notified", || count(&app) == 1).await;
    // Longer than the pause before another try.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&app), 1);
}

#[tokio::test]
async fn an_app_that_hangs_holds_up_nothing() {
    let app = http_app(&[0]).await;
    let harness = sidecar_of(&app).await;
    let start = Instant::now();
    for lock in 0..100 {
        lose(&harness, &format!("r{lock}")).await;
    }
    eventually("some notices arrive", || count(&app) > 0).await;
    let notices = count(&app);
    // Each of at most 64 calls under way may give up after 5 s and make room for another.
    let rounds = 1 + start.elapsed().as_secs() / 5;
    assert!(
        notices <= 64 * usize::try_from(rounds).unwrap(),
        "{notices} calls in {rounds} rounds"
    );
    let granted = harness.locks().await.lock(request("other")).await.unwrap().into_inner();
    assert!(!granted.lock_id.is_empty());
}

#[tokio::test]
async fn an_app_that_is_not_there_is_no_problem() {
    let app = http_app(&[200]).await;
    let harness = sidecar_of(&app).await;
    app.task.abort();
    lose(&harness, "r").await;
    eventually("it is released", || harness.memory.records() == 0).await;
    harness.locks().await.lock(request("r")).await.unwrap();
}
