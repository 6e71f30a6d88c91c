//! The alpha2 lock API, over gRPC and HTTP: locks with an explicit unlock, renewed in the
//! background, and locks that are held for as long as a stream lives.

mod calls;
mod check;
mod core;
pub mod grpc;
pub mod http;
pub(crate) mod inspection;
mod json;
mod keep_alive;
mod ndjson;
mod status;
mod stream;
mod wire;

pub(crate) use check::BYTES_MAX as CHECK_BYTES_MAX;
pub use core::{LockCall, Locks, UndeliveredGrant};
