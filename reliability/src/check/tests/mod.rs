//! For each rule, a small history that violates it, and a similar one that does not.
//!
//! "Is found" in a test's name means that the check reports a violation.

mod effects;
mod front;
mod holding;
mod linear;
mod order;
mod shared;
mod shared_linear;
mod survival;

use super::{Rule, story::Story};

fn is_linearizable(story: &Story) -> bool {
    !story.all_rules().contains(&Rule::Linearizable)
}
