//! What the tests and the fuzz harnesses of several crates need. It knows `lock` alone.
//!
//! - [`Model`](model::Model): what a lock store is; [`Differential`]: holds a backend against it.
//! - [`Input`] and [`attempt()`]: what a fuzz harness reads from its bytes;
//!   [`no_seed_breaks`]: a harness as a unit test.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "what fails here fails the test that uses it"
)]

mod attempt;
mod differential;
mod input;
pub mod model;
mod seeds;

pub use attempt::attempt;
pub use differential::Differential;
pub use input::Input;
pub use seeds::no_seed_breaks;
