//! The domain over a backend that fails on demand, in paused time: what every
//! backend shares is proven here once.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

mod clock;
mod faulty;
mod joining;
mod scale;
mod settling;
mod validation;
mod waiting;
