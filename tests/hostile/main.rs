//! Hostile connections against the real binary: whatever they send, memory
//! stays bounded, others are served meanwhile, nothing panics, and the
//! descriptors come back.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test"
)]

mod attacked;
mod connections;
mod frames;
mod http1;
mod http2;
mod overload;
mod steady_client;
mod suspended;
mod target;
