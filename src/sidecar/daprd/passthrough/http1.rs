//! HTTP requests that are not the sidecar's own.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response, Version,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};
use http_body::Body as _;
use tokio::sync::Semaphore;
use tower::{BoxError, Service};

use super::{
    Endpoint, EndpointError,
    body::PassedBody,
    client::{self, PassingClient},
    headers::{demanded_upgrade, join_cookies, strip_hop_by_hop},
    refusal::Refusal,
};
use crate::{descriptors, error_chain::chain};

/// The most requests to daprd under way at once, each on a connection of its own.
const CALLS_MAX: usize = 1_000;

/// Passes HTTP requests on to daprd: any method and path, bodies and answers
/// as they stream. `Host` stays the caller's; hop-by-hop headers end here.
///
/// When daprd is down, the answer is a JSON error that says so. Cheap to clone; all clones share the connections.
#[derive(Clone, Debug)]
pub struct HttpPassthrough(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    client: PassingClient,
    calls_max: usize,
    calls: Arc<Semaphore>,
}

impl HttpPassthrough {
    /// To the daprd at `endpoint`. Nothing is connected before the first
    /// request. Fails only if TLS is asked for and cannot be set up.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let client = client::http1(&endpoint)?;
        // The other half of the reserve is for backends.
        let spare = usize::try_from(descriptors::reserve() / 2).unwrap_or(CALLS_MAX);
        let calls_max = spare.min(CALLS_MAX);
        let calls = Arc::new(Semaphore::new(calls_max));
        Ok(Self(Arc::new(Inner { endpoint, client, calls_max, calls })))
    }
}

impl Inner {
    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, Refusal> {
        if let Some(protocol) = demanded_upgrade(request.headers()) {
            return Err(Refusal::Upgrade(protocol.to_owned()));
        }
        if request.method() == Method::CONNECT {
            return Err(Refusal::Upgrade("a tunnel".to_owned()));
        }
        let Ok(call) = Arc::clone(&self.calls).try_acquire_owned() else {
            return Err(Refusal::Busy(self.calls_max));
        };
        let answer = self.client.request(self.prepare(request)).await.map_err(|error| {
            let (endpoint, why) = (self.endpoint.clone(), chain(&error));
            if error.is_connect() {
                Refusal::Unreachable(endpoint, why)
            } else {
                Refusal::Broken(endpoint, why)
            }
        })?;
        let (mut answered, body) = answer.into_parts();
        strip_hop_by_hop(&mut answered.headers);
        let mut response = Response::new(Body::new(PassedBody::http(body, call)));
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        Ok(response)
    }

    fn prepare(&self, request: Request<Body>) -> Request<Body> {
        let (arrived, body) = request.into_parts();
        let mut headers = arrived.headers;
        strip_hop_by_hop(&mut headers);
        join_cookies(&mut headers);
        // HTTP/2 has the name in :authority. HTTP/1.0 may have none: then the
        // client puts the endpoint's.
        if let (false, Some(authority)) = (headers.contains_key(HOST), arrived.uri.authority())
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        // Said explicitly, because for a method that seldom has a body the
        // client would drop one of unknown length.
        if !headers.contains_key(CONTENT_LENGTH) && !body.is_end_stream() {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let mut passed = Request::new(body);
        *passed.method_mut() = arrived.method;
        *passed.uri_mut() = self.endpoint.uri(arrived.uri.path_and_query());
        *passed.version_mut() = Version::HTTP_11;
        *passed.headers_mut() = headers;
        passed
    }
}

impl<B> Service<Request<B>> for HttpPassthrough
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        let request = request.map(Body::new);
        Box::pin(
            async move { Ok(inner.pass(request).await.unwrap_or_else(Refusal::into_http)) },
        )
    }
}
