//! A watch of all locks of a run: across its faults, its events must add up to a list,
//! and must not contain a secret.

mod secrets;
mod table;
mod watcher;

pub use secrets::{Words, leaked};
pub use table::{Held, Table};
pub use watcher::Watchers;
