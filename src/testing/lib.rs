//! Shared code of tests and fuzz harnesses. It depends on `lock` alone.
//!
//! - [`Model`](model::Model): the reference model of a lock store; [`Differential`]: compares a
//!   backend with it.
//! - [`Input`] and [`attempt()`]: read a fuzz harness's input; [`no_seed_breaks`]: a
//!   harness as a unit test; [`World`]: a store under paused time.
//! - [`scripted`]: a backend with faults on demand; [`Recorder`]: an observer.
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
mod recorder;
pub mod scripted;
mod seeds;
mod world;

pub use attempt::attempt;
pub use differential::Differential;
pub use input::Input;
pub use recorder::{Recorded, Recorder};
pub use seeds::no_seed_breaks;
pub use world::{Outcome, World, frame};
