//! Passes calls that are not lock calls to daprd.

use std::sync::Arc;

use axum::body::Body;
use futures_util::{FutureExt as _, future::BoxFuture};
use http::{
    HeaderValue, Method, Request, Response, Version,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};
use http_body::Body as _;
use leasehold_net::config::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use leasehold_util::descriptors;
use tokio::sync::Semaphore;
use tower::BoxError;

use super::{
    Endpoint,
    body::PassedBody,
    client::{self, PassingClient},
    headers::{demanded_upgrade, join_cookies, strip_hop_by_hop},
    liveness::Liveness,
    protocol::Protocol,
    refusal::Refusal,
};
use crate::usage::UsageError;

/// How many gRPC calls to daprd may be under way at once, streams included.
const GRPC_CALLS_MAX: usize = 10_000;
/// How many HTTP requests to daprd may be under way at once, each on its own connection.
const HTTP_CALLS_MAX: usize = 1_000;

// Neither bodies that daprd does not read nor answers that callers do not read can fill the
// window of a shared connection.
const _: () =
    assert!(GRPC_CALLS_MAX < (CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES) as usize);

/// Passes calls on to daprd: any method and path, bodies, answers and trailers as they stream.
/// When one side goes away, the call is cancelled on the other.
///
/// gRPC keeps its metadata and deadline; `:authority` is that of the endpoint. Over HTTP `Host`
/// stays the caller's, and hop-by-hop headers end here. When daprd is down, the answer is a
/// gRPC status or a JSON error that says so. Cheap to clone; all clones share the connections.
#[derive(Clone, Debug)]
pub struct Passthrough(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    protocol: Protocol,
    endpoint: Endpoint,
    client: PassingClient,
    liveness: Liveness,
    calls_max: usize,
    calls: Arc<Semaphore>,
}

impl Passthrough {
    /// Passes gRPC calls to the daprd at `endpoint`, and connects at the first call. Fails only
    /// if TLS is asked for and cannot be set up.
    pub fn grpc(endpoint: Endpoint) -> Result<Self, UsageError> {
        let client = client::http2(&endpoint)?;
        Ok(Self::new(Protocol::Grpc, endpoint, client, GRPC_CALLS_MAX))
    }

    /// Like [`Passthrough::grpc`], for HTTP requests.
    pub fn http(endpoint: Endpoint) -> Result<Self, UsageError> {
        let client = client::http1(&endpoint)?;
        // The other half of the reserve is left to backends.
        let spare = usize::try_from(descriptors::reserve() / 2).unwrap_or(HTTP_CALLS_MAX);
        Ok(Self::new(Protocol::Http, endpoint, client, spare.min(HTTP_CALLS_MAX)))
    }

    fn new(
        protocol: Protocol,
        endpoint: Endpoint,
        client: PassingClient,
        calls_max: usize,
    ) -> Self {
        let calls = Arc::new(Semaphore::new(calls_max));
        let liveness = Liveness::default();
        Self(Arc::new(Inner { protocol, endpoint, client, liveness, calls_max, calls }))
    }

    /// Passes on one call.
    pub async fn pass(self, request: Request<Body>) -> Response<Body> {
        let answer = self.answer(request).await;
        answer.unwrap_or_else(|refusal| refusal.into_answer(self.0.protocol))
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        let this = &self.0;
        if let Some(protocol) = demanded_upgrade(request.headers()) {
            return Err(Refusal::Upgrade(protocol.to_owned()));
        }
        if request.method() == Method::CONNECT {
            return Err(Refusal::Upgrade("a tunnel".to_owned()));
        }
        let Ok(call) = Arc::clone(&this.calls).try_acquire_owned() else {
            return Err(Refusal::Busy(this.calls_max));
        };
        let mut lost = self.lost();
        let answer = tokio::select! {
            answer = this.client.request(this.prepare(request)) => answer,
            lost = &mut lost => return Err(Refusal::Broken(this.endpoint.clone(), lost)),
        };
        let answer = answer.map_err(|error| {
            let is_connect = error.is_connect();
            let (endpoint, error) = (this.endpoint.clone(), error.into());
            if is_connect {
                Refusal::Unreachable(endpoint, error)
            } else {
                Refusal::Broken(endpoint, error)
            }
        })?;
        let (mut answered, inner) = answer.into_parts();
        strip_hop_by_hop(&mut answered.headers);
        let endpoint = this.endpoint.clone();
        let body = PassedBody::new(inner, this.protocol, endpoint, lost, call);
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        Ok(response)
    }

    /// Completes when daprd no longer answers.
    fn lost(&self) -> BoxFuture<'static, BoxError> {
        let this = Arc::clone(&self.0);
        match this.protocol {
            // HTTP/2 has its own pings.
            Protocol::Grpc => std::future::pending().boxed(),
            Protocol::Http => async move {
                this.liveness.lost(|| this.client.get(this.endpoint.health())).await
            }
            .boxed(),
        }
    }
}

impl Inner {
    fn prepare(&self, request: Request<Body>) -> Request<Body> {
        let (arrived, body) = request.into_parts();
        let mut headers = arrived.headers;
        strip_hop_by_hop(&mut headers);
        let version = match self.protocol {
            Protocol::Grpc => {
                // HTTP/2 has :authority in its place.
                headers.remove(HOST);
                Version::HTTP_2
            }
            Protocol::Http => {
                join_cookies(&mut headers);
                // HTTP/2 has the name in :authority. HTTP/1.0 may have none: then the
                // client sets the endpoint's.
                if let (false, Some(authority)) =
                    (headers.contains_key(HOST), arrived.uri.authority())
                    && let Ok(host) = HeaderValue::from_str(authority.as_str())
                {
                    headers.insert(HOST, host);
                }
                // Set explicitly: for methods that seldom have a body, the client
                // would drop a body of unknown length.
                if !headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream() {
                    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
                Version::HTTP_11
            }
        };
        let mut passed = Request::new(body);
        *passed.method_mut() = arrived.method;
        *passed.uri_mut() = self.endpoint.uri(arrived.uri.path_and_query());
        *passed.version_mut() = version;
        *passed.headers_mut() = headers;
        passed
    }
}
