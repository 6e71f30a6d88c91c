//! The locks that apps hold through this sidecar: renewed in one place, and
//! told when they are lost.
//!
//! [`clockwork`] decides what one lock needs and when; [`table`] keeps all of
//! them in the order in which something comes due; [`Engine`] is the one task
//! that acts on it, with a limit on how much is under way towards each store.

mod calls;
mod cause;
mod clockwork;
mod driver;
mod engine;
mod lane;
mod loss;
mod lost;
mod record;
mod release;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use cause::Cause;
pub use clockwork::MaxHold;
pub use engine::{Engine, EngineOptions};
pub use record::{Ended, HeldGuard, Holding, LostLock};

use crate::lock::ResourceId;

/// What is held: at most one live grant has this key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldKey {
    /// The store's name.
    pub store: Arc<str>,
    /// The resource, prefixed.
    pub resource: ResourceId,
}
