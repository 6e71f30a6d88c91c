//! Renews the locks that are held through this process, and reports lost ones.
//!
//! [`Engine::hold`] takes a grant, [`Engine::unlock`] ends it. In between one task, the
//! driver, does what is due:
//!
//! ```text
//!                  Engine::hold, unlock, renew            LockStore
//!                              │                              ▲ renew, unlock
//!   driver ── what is due ──▶ Table ── a Record per lock ─────┘
//!                              │
//!                              └── lost: the stream, or a notice to the app
//! ```
//!
//! - `table` keeps the records, ordered by when something comes due; `lane` limits how many
//!   renewals are under way towards each store.
//! - A record's state is that of three small machines, each drawn at its type: its
//!   `renewal`, its `unlock`, and its `keeper`. Their methods decide and return what to
//!   do; they wait for nothing.
//! - `schedule` says when a lock is renewed, released (`max_hold`) and lost; `belief` is
//!   until when its holder may rely on it.
//! - `in_flight`: the requests that may still be answered with a lock. It is not released
//!   before they have ended.
//! - `known`: the state of a lock without asking its store.
//! - `hold`, `calls`, `driver` and `loss` do it, the table locked, and never across an
//!   await.
//! - `tally` reports what is held, and how it ended.
//!
//! Nothing here depends on the sidecar.

mod belief;
mod calls;
mod cause;
mod change;
mod claims;
mod driver;
mod engine;
mod error;
mod hold;
mod in_flight;
mod keeper;
mod known;
mod lane;
mod loss;
mod lost;
mod max_hold;
mod record;
mod renewal;
mod schedule;
mod store;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod unlock;

pub use cause::{Cause, HoldEnd};
pub use change::Change;
pub use engine::{Engine, EngineOptions};
pub use error::HeldError;
pub use hold::HeldGuard;
pub use in_flight::InFlight;
pub use known::Known;
pub use max_hold::MaxHold;
pub use record::{Holding, LostLock};
pub use store::{LockStore, Resource};
