//! The alpha2 lock API: explicit unlock with renewal in the background, and
//! the stream whose life is the lock's life, over gRPC and HTTP.

mod core;
pub mod grpc;
pub mod http;
mod json;
mod ndjson;
mod status;
mod stream;
mod wire;

pub use core::{LockCall, Locks, UndeliveredGrant};
#[cfg(any(fuzzing, test))]
pub(super) use json::go_duration;
