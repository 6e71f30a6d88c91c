//! Everything that is not a lock call: handed to the daprd behind the sidecar,
//! as bytes by path, nothing decoded.
//!
//! [`GrpcPassthrough`] and [`HttpPassthrough`] are infallible tower services,
//! so that a server can fall back on them. What the other side answers, its
//! errors included, is answered unchanged; a refusal of the sidecar's own
//! always names the endpoint and its flag.
//!
//! ```text
//! server ──▶ GrpcPassthrough ── HTTP/2, one connection ──▶ daprd
//!        └─▶ HttpPassthrough ── HTTP/1.1, pooled ────────▶ daprd
//! ```

mod body;
mod client;
mod endpoint;
mod grpc;
mod headers;
mod http1;
mod refusal;

pub(super) use client::{PassingClient, http1 as http1_client};
pub use endpoint::{Endpoint, EndpointError};
pub use grpc::GrpcPassthrough;
pub use http1::HttpPassthrough;
