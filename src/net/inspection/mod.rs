//! What both edges do alike to show the locks.
//!
//! [`requests`] reads what is asked for, and [`pages`] which page of it; [`messages`] writes
//! what is told; [`forced_by`] logs what is ended.

mod forced_by;
mod messages;
mod pages;
mod requests;

pub use forced_by::{ForcedBy, seen};
pub use messages::{Named, count, event, raw, state, status, waiter};
pub use pages::{List, given_limit, unknown_page};
pub use requests::{end_request, grant_id, holder_prefix, name_prefix, reason, watched_scope};
