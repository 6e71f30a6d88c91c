//! The pass-through, with a stand-in for daprd behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod grpc;
mod http;
mod stand_in;
