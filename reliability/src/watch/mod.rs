//! A watch of all locks of a run: across its faults, what it tells must add up to what a
//! list tells, and must not contain a secret.

mod secrets;
mod table;
mod watcher;

pub use secrets::{Words, leaked};
pub use table::{Held, Table};
pub use watcher::Watchers;
