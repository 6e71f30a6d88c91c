//! The sidecar over memory, with apps as clients: both APIs over both
//! protocols, and the command itself with daprd and stores.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test"
)]

mod alpha1_grpc;
mod alpha1_http;
mod alpha2_grpc;
mod alpha2_http;
mod binary;
mod browsers;
mod callback;
mod check;
mod chromium;
mod contention;
mod detach;
mod environment;
mod failed_unlocks;
mod harness;
mod holder;
mod inspection;
mod keep_alive;
mod leaving;
mod lock_paths;
mod names;
mod ndjson;
mod shared;
#[path = "../passthrough/stand_in.rs"]
#[allow(dead_code, reason = "the pass-through's own tests use the rest")]
mod stand_in;
mod stream;
mod unix_sockets;
mod waits;
mod wiring;
