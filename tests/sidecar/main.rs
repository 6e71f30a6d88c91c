//! The sidecar over memory, spoken to as an app speaks to it: both APIs, over
//! both protocols.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod alpha1_grpc;
mod alpha1_http;
mod alpha2_grpc;
mod alpha2_http;
mod callback;
mod harness;
mod ndjson;
mod stream;
mod surroundings;
