//! The locks that are held through this process: renewed in one place, and
//! told when they are lost.
//!
//! [`schedule`] decides what one lock needs and when; [`table`] keeps all of
//! them in the order in which something comes due; [`Engine`] is the one task
//! that acts on it, with a limit on how much is under way towards each store.

mod calls;
mod cause;
mod driver;
mod engine;
mod error;
mod lane;
mod loss;
mod lost;
mod record;
mod release;
mod schedule;
mod store;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub use cause::Cause;
pub use engine::{Engine, EngineOptions};
pub use error::HeldError;
pub use record::{Ended, HeldGuard, Holding, LostLock};
pub use schedule::MaxHold;
pub use store::{HeldKey, LockStore, StoreId, Target};
