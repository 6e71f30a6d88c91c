//! Tests of the domain over a backend that fails on demand, in paused time.
//!
//! All backends share this code, so it is tested here once.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod clock;
mod ending;
mod faulty;
mod joining;
mod listing;
mod observed;
mod scale;
mod settling;
mod shared;
mod unlocking;
mod validation;
mod waiting;
mod watched;
mod watching;
