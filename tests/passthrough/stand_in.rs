//! A stand-in for daprd that answers as scripted and reports what arrives, and
//! the pass-through in front of it.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, serve::ListenerExt as _};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, request::Parts};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use leasehold_sidecar::daprd::passthrough::{Endpoint, Passthrough};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

pub(crate) type Frames = mpsc::Sender<Result<Frame<Bytes>, Broken>>;

/// Ends a body with an error, so that the stream is reset.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
pub(crate) struct Broken;

/// An event at the stand-in.
#[derive(Debug)]
pub(crate) enum Seen {
    Head(Box<Parts>),
    Data(Bytes),
    Trailers(HeaderMap),
    EndOfRequest,
    RequestBroken,
    CallDropped,
}

/// A body that is sent frame by frame.
pub(crate) fn channel_body() -> (Frames, Body) {
    let (frames, receiver) = mpsc::channel(16);
    (frames, Body::new(StreamBody::new(ReceiverStream::new(receiver))))
}

pub(crate) fn data(text: impl Into<Bytes>) -> Result<Frame<Bytes>, Broken> {
    Ok(Frame::data(text.into()))
}

pub(crate) fn trailers(pairs: &[(&'static str, &'static str)]) -> Result<Frame<Bytes>, Broken> {
    Ok(Frame::trailers(headers(pairs)))
}

pub(crate) fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (name.parse().unwrap(), value.parse().unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// The stand-in. Its answer to each call is the next one it was given.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    pub(crate) seen: mpsc::Receiver<Seen>,
    answers: mpsc::Sender<Response<Body>>,
    server: AbortHandle,
}

impl StandIn {
    pub(crate) async fn start() -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into()).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen_sender, seen) = mpsc::channel(1024);
        let (answers, next_answers) = mpsc::channel::<Response<Body>>(16);
        let next_answers = std::sync::Arc::new(tokio::sync::Mutex::new(next_answers));
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (seen, answers) = (seen_sender.clone(), next_answers.clone());
                connections.spawn(async move {
                    let serve = service_fn(move |request| {
                        let (seen, answers) = (seen.clone(), answers.clone());
                        async move {
                            let dropped = OnDrop(seen.clone(), true);
                            record(request, seen).await;
                            let mut answers = answers.lock().await;
                            let answer = match answers.recv().await {
                                Some(answer) => answer,
                                None => std::future::pending().await,
                            };
                            dropped.disarm();
                            Ok::<_, Infallible>(answer)
                        }
                    });
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), serve)
                        .await;
                });
            }
        })
        .abort_handle();
        Self { address, seen, answers, server }
    }

    pub(crate) async fn answer(&self, answer: Response<Body>) {
        self.answers.send(answer).await.unwrap();
    }

    /// The next event, which must come within ten seconds.
    pub(crate) async fn next(&mut self) -> Seen {
        timeout(Duration::from_secs(10), self.seen.recv()).await.unwrap().unwrap()
    }

    pub(crate) async fn head(&mut self) -> Parts {
        match self.next().await {
            Seen::Head(head) => *head,
            other => panic!("not a head: {other:?}"),
        }
    }

    /// The whole of the request's body.
    pub(crate) async fn body(&mut self) -> (Vec<u8>, Option<HeaderMap>) {
        let (mut bytes, mut trailers) = (Vec::new(), None);
        loop {
            match self.next().await {
                Seen::Data(data) => bytes.extend_from_slice(&data),
                Seen::Trailers(seen) => trailers = Some(seen),
                Seen::EndOfRequest => return (bytes, trailers),
                other => panic!("not a body: {other:?}"),
            }
        }
    }

    /// Simulates the end of the process: every connection breaks.
    pub(crate) fn kill(&self) {
        self.server.abort();
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Reports a call that its server dropped.
struct OnDrop(mpsc::Sender<Seen>, bool);

impl OnDrop {
    fn disarm(mut self) {
        self.1 = false;
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if self.1 {
            let _ = self.0.try_send(Seen::CallDropped);
        }
    }
}

/// Reports the head, and the body as it arrives, while the answer may already
/// be under way.
async fn record(request: Request<Incoming>, seen: mpsc::Sender<Seen>) {
    let (head, mut body) = request.into_parts();
    seen.send(Seen::Head(Box::new(head))).await.unwrap();
    tokio::spawn(async move {
        while let Some(frame) = body.frame().await {
            let _ = match frame.map(Frame::into_data) {
                // It has only the end of the stream.
                Ok(Ok(data)) if data.is_empty() => continue,
                Ok(Ok(data)) => seen.send(Seen::Data(data)).await,
                Ok(Err(frame)) => {
                    seen.send(Seen::Trailers(frame.into_trailers().unwrap())).await
                }
                Err(_) => {
                    let _ = seen.send(Seen::RequestBroken).await;
                    return;
                }
            };
        }
        let _ = seen.send(Seen::EndOfRequest).await;
    });
}

/// The pass-through of one protocol, served as the sidecar serves it.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    server: AbortHandle,
}

impl Front {
    pub(crate) async fn grpc(daprd: SocketAddr) -> Self {
        let endpoint = endpoint("--daprd-grpc-endpoint", daprd);
        Self::serve(Passthrough::grpc(endpoint).unwrap()).await
    }

    pub(crate) async fn http(daprd: SocketAddr) -> Self {
        let endpoint = endpoint("--daprd-http-endpoint", daprd);
        Self::serve(Passthrough::http(endpoint).unwrap()).await
    }

    async fn serve(daprd: Passthrough) -> Self {
        let pass = move |request: Request<Body>| daprd.clone().pass(request);
        let router = Router::new().fallback(pass);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server: server.abort_handle() }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn endpoint(flag: &'static str, address: SocketAddr) -> Endpoint {
    Endpoint::parse(flag, &address.to_string()).unwrap()
}

/// Sends a request over a connection of its own.
pub(crate) async fn send(http2: bool, request: Request<Body>) -> Response<Incoming> {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    let client: Client<_, Body> =
        Client::builder(TokioExecutor::new()).http2_only(http2).build(tcp);
    timeout(Duration::from_secs(30), client.request(request)).await.unwrap().unwrap()
}

/// The next frame of an answer, which must be within ten seconds.
pub(crate) async fn frame(answer: &mut Response<Incoming>) -> Option<Frame<Bytes>> {
    let next = timeout(Duration::from_secs(10), answer.body_mut().frame()).await.unwrap();
    next.transpose().unwrap()
}

/// An address where nothing listens.
pub(crate) async fn nowhere() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A body that repeats one chunk.
pub(crate) fn many(chunk: Bytes, times: usize) -> Body {
    let chunks = tokio_stream::iter(std::iter::repeat_n(chunk, times));
    Body::from_stream(chunks.map(Ok::<_, Infallible>))
}
