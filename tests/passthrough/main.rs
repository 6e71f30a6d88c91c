//! The pass-through, held to what a stand-in for daprd sees and says.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod grpc;
mod http;
mod stand_in;
