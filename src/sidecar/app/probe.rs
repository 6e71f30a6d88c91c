//! Asking an app for its health, over HTTP and over gRPC.

use std::{sync::Arc, time::Duration};

use http::{Request, Uri, uri::PathAndQuery};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use leasehold_util::error_chain::chain;
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tonic_prost::ProstCodec;
use tracing::debug;

use super::{
    client::{AppChannel, AppClient},
    health::AppProbe,
};
use crate::{failed_unlocks::Reports, usage::UsageError};

const GRPC_METHOD: &str = "/dapr.proto.runtime.v1.AppCallbackHealthCheck/HealthCheck";
/// The largest answer whose body is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long the body of an answer may take.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// GETs a path of the app: any 2xx is healthy.
#[derive(Debug)]
pub struct HttpProbe {
    client: AppClient<Empty<Bytes>>,
    url: Uri,
    /// Permits to read the body of an answer: one at a time.
    reading: Arc<Semaphore>,
    reports: Option<mpsc::Sender<Reports>>,
}

impl HttpProbe {
    /// Probes `path` over the app's protocol.
    pub fn new(app: &AppChannel, path: &str) -> Result<Self, UsageError> {
        let bad_path = || {
            UsageError(format!(
                "--app-health-check-path {path:?} is no path; write for example /healthz"
            ))
        };
        if !path.starts_with('/') {
            return Err(bad_path());
        }
        let path: PathAndQuery = path.parse().map_err(|_| bad_path())?;
        let reading = Arc::new(Semaphore::new(1));
        Ok(Self { client: app.client()?, url: app.url(path)?, reading, reports: None })
    }

    /// Also forwards the failed unlocks that the app reports in its answers. If the queue
    /// is full, a report is dropped; the app repeats it in a later answer.
    #[must_use]
    pub fn reporting_to(self, reports: mpsc::Sender<Reports>) -> Self {
        Self { reports: Some(reports), ..self }
    }

    /// Reads the body of an answer in a task of its own, because only the status decides
    /// whether the app is healthy, however slow the body is.
    fn read(&self, body: Incoming) {
        let Ok(place) = Arc::clone(&self.reading).try_acquire_owned() else { return };
        let reports = self.reports.clone();
        tokio::spawn(async move {
            let _place = place;
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect();
            let read = match timeout(READ_TIMEOUT, body).await {
                Ok(Ok(body)) => Reports::read(&body.to_bytes()),
                Ok(Err(error)) if error.is::<LengthLimitError>() => Reports::too_long(),
                Ok(Err(error)) => return debug!(%error, "a health answer's body was not read"),
                Err(error) => return debug!(%error, "a health answer's body was not read"),
            };
            let Some(reports) = reports else { return };
            if !read.is_empty() {
                let _ = reports.try_send(read);
            }
        });
    }
}

impl AppProbe for HttpProbe {
    async fn probe(&self) -> Result<(), String> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.url.clone();
        let answer = self.client.request(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("{} answered {status}", self.url));
        }
        self.read(answer.into_body());
        Ok(())
    }
}

/// Calls the app's `AppCallbackHealthCheck/HealthCheck`: OK is healthy.
#[derive(Debug)]
pub struct GrpcProbe {
    client: AppClient<tonic::body::Body>,
    origin: Uri,
}

impl GrpcProbe {
    /// Probes the app over its protocol.
    pub fn new(app: &AppChannel) -> Result<Self, UsageError> {
        let origin = app.url(PathAndQuery::from_static("/"))?;
        Ok(Self { client: app.client()?, origin })
    }
}

impl AppProbe for GrpcProbe {
    async fn probe(&self) -> Result<(), String> {
        let mut client =
            tonic::client::Grpc::with_origin(self.client.clone(), self.origin.clone());
        client.ready().await.map_err(|error| error.to_string())?;
        let method = PathAndQuery::from_static(GRPC_METHOD);
        // Both messages are google.protobuf.Empty.
        let codec = ProstCodec::<(), ()>::default();
        let answer = client.unary(tonic::Request::new(()), method, codec).await;
        answer
            .map(|_| ())
            .map_err(|status| format!("{:?}: {}", status.code(), status.message()))
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, net::SocketAddr};

    use axum::{
        Router,
        body::Body,
        http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
        routing::{get, post},
    };
    use futures_util::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use leasehold_testkit::proxy::Proxy;
    use tokio::{net::TcpListener, task::AbortHandle};

    use super::*;
    use crate::{AppProtocol, api::auth::Token};

    fn channel(address: &str, port: u16, protocol: AppProtocol) -> AppChannel {
        AppChannel::new(address, port, protocol, Token::default())
    }

    /// An app that stops with the test.
    struct App(SocketAddr, AbortHandle);

    impl App {
        async fn serve(router: Router) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
            Self(address, server.abort_handle())
        }

        fn speaking(&self, protocol: AppProtocol) -> AppChannel {
            channel(&self.0.ip().to_string(), self.0.port(), protocol)
        }
    }

    impl Drop for App {
        fn drop(&mut self) {
            self.1.abort();
        }
    }

    #[tokio::test]
    async fn any_2xx_is_healthy_over_http() {
        let router = Router::new()
            .route("/ok", get(|| async { (StatusCode::ACCEPTED, "fine") }))
            .route("/moved", get(|| async { StatusCode::FOUND }))
            .route("/sick", get(|| async { StatusCode::SERVICE_UNAVAILABLE }));
        let app = App::serve(router).await;
        for protocol in [AppProtocol::Http, AppProtocol::H2c] {
            let app = app.speaking(protocol);
            let probe = async |path| HttpProbe::new(&app, path).unwrap().probe().await;
            assert_eq!(probe("/ok").await, Ok(()));
            for sick in ["/moved", "/sick", "/absent"] {
                let why = probe(sick).await.unwrap_err();
                assert!(why.contains(sick), "{why}");
            }
        }
    }

    /// An answer's body in parts; unless `ends`, it never ends.
    fn body(parts: &'static [&'static str], ends: bool) -> Body {
        let parts = stream::iter(parts).map(|part| Ok::<_, Infallible>(Bytes::from(*part)));
        if ends {
            Body::from_stream(parts)
        } else {
            Body::from_stream(parts.chain(stream::pending()))
        }
    }

    #[tokio::test]
    async fn only_the_status_decides_health_whatever_the_body_is() {
        let router = Router::new()
            .route("/endless", get(|| async { body(&["{"], false) }))
            .route("/broken", get(|| async { body(&["{\"details\":"], true) }));
        let server = App::serve(router).await;
        let app = server.speaking(AppProtocol::Http);
        for path in ["/endless", "/broken"] {
            let (report, mut reports) = mpsc::channel(1);
            let probe = HttpProbe::new(&app, path).unwrap().reporting_to(report);
            for _ in 0..3 {
                assert_eq!(probe.probe().await, Ok(()), "{path}");
            }
            assert!(reports.try_recv().is_err(), "{path}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_a_problem_and_healthy() {
        let large = get(|| async { "x".repeat(ANSWER_BYTES_MAX + 1) });
        let server = App::serve(Router::new().route("/large", large)).await;
        let (report, mut reports) = mpsc::channel(1);
        let app = server.speaking(AppProtocol::Http);
        let probe = HttpProbe::new(&app, "/large").unwrap().reporting_to(report);
        assert_eq!(probe.probe().await, Ok(()));
        assert_eq!(reports.recv().await, Some(Reports::too_long()));
    }

    async fn grpc_answer(status: i32) -> Result<(), String> {
        let answer = move || async move {
            let trailers: HeaderMap =
                [(HeaderName::from_static("grpc-status"), HeaderValue::from(status))]
                    .into_iter()
                    .collect();
            let empty_message = Frame::data(Bytes::from_static(&[0; 5]));
            let frames = [Ok::<_, Infallible>(empty_message), Ok(Frame::trailers(trailers))];
            let body = StreamBody::new(futures_util::stream::iter(frames));
            ([("content-type", "application/grpc")], Body::new(body))
        };
        let app = App::serve(Router::new().route(GRPC_METHOD, post(answer))).await;
        GrpcProbe::new(&app.speaking(AppProtocol::Grpc)).unwrap().probe().await
    }

    #[tokio::test]
    async fn only_ok_is_healthy_over_grpc() {
        assert_eq!(grpc_answer(0).await, Ok(()));
        assert!(grpc_answer(14).await.unwrap_err().starts_with("Unavailable"));
        let unaware = App::serve(Router::new()).await;
        let why = GrpcProbe::new(&unaware.speaking(AppProtocol::Grpc))
            .unwrap()
            .probe()
            .await
            .unwrap_err();
        assert!(why.starts_with("Unimplemented"), "{why}");
    }

    #[tokio::test]
    async fn a_connection_that_went_dark_is_not_used_again() {
        let ok = get(|| async {});
        let app = App::serve(Router::new().route("/ok", ok)).await;
        for protocol in [AppProtocol::Http, AppProtocol::H2c] {
            let proxy = Proxy::start(app.0).await;
            let port = proxy.address().rsplit(':').next().unwrap().parse().unwrap();
            let probe = HttpProbe::new(&channel("127.0.0.1", port, protocol), "/ok").unwrap();
            assert_eq!(probe.probe().await, Ok(()));
            proxy.vanish();
            let again = timeout(Duration::from_secs(10), probe.probe()).await;
            assert_eq!(again.expect("no answer"), Ok(()), "{protocol:?}");
        }
    }

    #[tokio::test]
    async fn an_app_that_is_not_there_is_not_healthy() {
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let nobody = |protocol| channel("127.0.0.1", nobody.port(), protocol);
        let http = HttpProbe::new(&nobody(AppProtocol::Http), "/healthz").unwrap();
        let why = http.probe().await.unwrap_err();
        assert!(why.contains("refused"), "{why}");
        let grpc = GrpcProbe::new(&nobody(AppProtocol::Grpc)).unwrap();
        assert!(grpc.probe().await.is_err());
    }

    #[test]
    fn what_is_no_path_or_address_is_refused() {
        let app = |address| channel(address, 1, AppProtocol::Http);
        let refused =
            |address, path| HttpProbe::new(&app(address), path).unwrap_err().to_string();
        assert!(refused("h", "healthz").contains("--app-health-check-path"));
        assert!(refused("h", "/a b").contains("--app-health-check-path"));
        assert!(refused("h h", "/healthz").contains("--app-channel-address"));
        assert!(GrpcProbe::new(&app("h h")).is_err());
    }
}
