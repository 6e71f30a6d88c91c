//! Passes gRPC calls that are not lock calls to daprd.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, Version};
use hyper_util::client::legacy;
use tokio::sync::Semaphore;
use tonic::Status;
use tower::{BoxError, Service};

use super::{
    Endpoint, EndpointError,
    body::{PassedBody, is_reset},
    client::{self, PassingClient},
    refusal::Refusal,
};
use crate::{
    error_chain::chain,
    net::config::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES},
};

/// How many calls to daprd may be under way at once, streams included.
const CALLS_MAX: usize = 10_000;

// Neither bodies that daprd does not read nor answers that callers do not read can fill the
// window of a connection that they share with others.
const _: () = assert!(CALLS_MAX < (CONNECTION_WINDOW_BYTES / STREAM_WINDOW_BYTES) as usize);

/// Passes gRPC calls on to daprd: any method and message, unary or streaming,
/// with metadata, deadline and trailers unchanged. When one side goes away, the call is
/// cancelled on the other.
///
/// `:authority` is that of the endpoint. When daprd is down, a call ends with a status
/// that says so. Cheap to clone; all clones share one connection.
#[derive(Clone, Debug)]
pub struct GrpcPassthrough(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    client: PassingClient,
    calls: Arc<Semaphore>,
}

impl GrpcPassthrough {
    /// Passes calls to the daprd at `endpoint`, and connects at the first call. Fails only
    /// if TLS is asked for and cannot be set up.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let client = client::http2(&endpoint)?;
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        Ok(Self(Arc::new(Inner { endpoint, client, calls })))
    }
}

impl Inner {
    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let Ok(call) = Arc::clone(&self.calls).try_acquire_owned() else {
            return Err(Refusal::Busy(CALLS_MAX).into_status());
        };
        let (arrived, body) = request.into_parts();
        let mut passed = Request::new(body);
        *passed.method_mut() = arrived.method;
        *passed.uri_mut() = self.endpoint.uri(arrived.uri.path_and_query());
        *passed.version_mut() = Version::HTTP_2;
        *passed.headers_mut() = arrived.headers;
        // HTTP/2 has :authority in its place.
        passed.headers_mut().remove(http::header::HOST);
        let answer =
            self.client.request(passed).await.map_err(|error| self.status_of(error))?;
        let endpoint = self.endpoint.clone();
        Ok(answer.map(|body| Body::new(PassedBody::grpc(body, endpoint, call))))
    }

    fn status_of(&self, error: legacy::Error) -> Status {
        let why = chain(&error);
        if error.is_connect() {
            Refusal::Unreachable(self.endpoint.clone(), why).into_status()
        } else if is_reset(&error) {
            // gRPC defines a status for each of HTTP/2's error codes.
            Status::from_error(Box::new(error))
        } else {
            Refusal::Broken(self.endpoint.clone(), why).into_status()
        }
    }
}

impl<B> Service<Request<B>> for GrpcPassthrough
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
        Box::pin(async move { Ok(inner.pass(request).await.unwrap_or_else(Status::into_http)) })
    }
}
