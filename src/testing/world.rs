//! A store under paused time, and the answers of services over it.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use leasehold_lock::{AcquireRequest, Clock, Kind, LockId, Store};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Longer than any call that ends by itself.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A runtime whose clock advances only when nothing else can run, and a store in which
/// one resource is held for 30 s.
pub struct World {
    runtime: tokio::runtime::Runtime,
    /// The store.
    pub store: Store,
}

/// The parts of an answer that do not vary between runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status of HTTP.
    pub http: u16,
    /// The status of gRPC, if it was received.
    pub grpc: Option<Code>,
    /// The fields that were refused.
    pub fields: Vec<String>,
}

impl World {
    /// A store of this kind, without properties. `held` is the key of the resource that is
    /// held.
    #[must_use]
    pub fn new(kind: Kind, held: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let store = runtime.block_on(async {
            let store = kind.open([], Clock::system(), None).await.unwrap();
            let mut request = AcquireRequest::new(held.parse().unwrap());
            request.lock_id = LockId::optional("owner").unwrap();
            store.try_lock(request).await.unwrap().receipt.accept();
            store
        });
        Self { runtime, store }
    }

    /// Runs `work` to its end; panics if it does not end.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .expect("the call did not end")
    }
}

impl Outcome {
    /// Reads a gRPC answer up to its first message or its end. No request may be answered
    /// with INTERNAL or UNKNOWN, except that alpha1 refuses with these codes as daprd does
    /// (`daprs_codes`).
    pub async fn read<B>(response: http::Response<B>, daprs_codes: bool) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (parts, body) = response.into_parts();
        let mut body = std::pin::pin!(body);
        let mut status = Status::from_header_map(&parts.headers);
        if status.is_none()
            && let Some(frame) = body.frame().await
        {
            let frame = frame.expect("the body broke off");
            status = frame.trailers_ref().and_then(Status::from_header_map);
        }
        let grpc = status.as_ref().map(Status::code);
        if daprs_codes {
            let message = status.as_ref().map_or("", Status::message);
            assert!(!message.ends_with("lock: internal error"), "{status:?}");
        } else {
            assert!(!matches!(grpc, Some(Code::Internal | Code::Unknown)), "{status:?}");
        }
        let fields = status.as_ref().map(fields).unwrap_or_default();
        if grpc == Some(Code::InvalidArgument) && !daprs_codes {
            assert!(fields.iter().all(|field| !field.is_empty()) && !fields.is_empty());
        }
        Self { http: parts.status.as_u16(), grpc, fields }
    }
}

fn fields(status: &Status) -> Vec<String> {
    let blamed = status.get_details_bad_request().map(|bad| bad.field_violations);
    blamed.unwrap_or_default().into_iter().map(|violation| violation.field).collect()
}

/// A message with its gRPC frame header.
#[must_use]
pub fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap());
    framed.put_slice(message);
    framed.freeze()
}
