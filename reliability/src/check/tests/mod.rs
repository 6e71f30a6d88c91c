//! For each rule, a small history that violates it, and a similar one that does not.
//!
//! "Is found" in a test's name means that the check reports a violation.

mod effects;
mod front;
mod holding;
mod losses;
mod order;
mod shared;
mod survival;
