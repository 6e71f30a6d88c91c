//! The locks that apps hold through this sidecar: renewed in one place, and
//! told when they are lost.
//!
//! [`schedule`] decides what one lock needs and when; [`table`] keeps all of
//! them in the order in which something comes due; [`Engine`] is the one task
//! that acts on it, with a limit on how much is under way towards each store.

mod calls;
mod cause;
mod driver;
mod engine;
mod lane;
mod loss;
mod lost;
mod record;
mod release;
mod schedule;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use cause::Cause;
pub use engine::{Engine, EngineOptions};
pub use record::{Ended, HeldGuard, Holding, LostLock};
pub use schedule::MaxHold;

use crate::{lock::ResourceId, sidecar::stores::NamedStore};

/// What is held, as the app names it. It means the same after a reload that
/// gave the component another backend or key prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldKey {
    /// The store's name.
    pub store: Arc<str>,
    /// The resource, without a prefix.
    pub resource: ResourceId,
}

/// Where a resource is locked.
#[derive(Clone, Debug)]
pub struct Target {
    /// The store.
    pub store: Arc<NamedStore>,
    /// The store's name of the resource, prefixed.
    pub resource: ResourceId,
}
