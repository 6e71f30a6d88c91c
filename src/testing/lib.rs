//! What the tests and the fuzz harnesses of several crates need. It knows `lock` alone.
//!
//! - [`Model`](model::Model): what a lock store is; [`Differential`]: holds a backend against it.
//! - [`Input`] and [`attempt()`]: what a fuzz harness reads from its bytes;
//!   [`no_seed_breaks`]: a harness as a unit test; [`World`]: a store under paused time.
//! - [`scripted`]: a backend with faults on demand.
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
pub mod scripted;
mod seeds;
mod world;

pub use attempt::attempt;
pub use differential::Differential;
pub use input::Input;
pub use seeds::no_seed_breaks;
pub use world::{Told, World, frame};
