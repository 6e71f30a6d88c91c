//! Passes every call that is not a lock call to the daprd behind the sidecar,
//! by path and without decoding it.
//!
//! Answers of daprd, its errors included, are returned unchanged; an error of the sidecar
//! itself always names the endpoint and its flag.
//!
//! ```text
//! server ──▶ Passthrough ──┬─ gRPC: HTTP/2, one connection ──▶ daprd
//!                          └─ HTTP/1.1, pooled ──────────────▶ daprd
//! ```

mod body;
mod client;
mod endpoint;
mod headers;
mod liveness;
mod pass;
mod protocol;
mod refusal;

pub(super) use client::{PassingClient, http1 as http1_client};
pub use endpoint::Endpoint;
pub use pass::Passthrough;
