//! The part of inspection that both edges share.
//!
//! [`requests`] reads requests, [`pages`] their pages; [`messages`] writes responses;
//! [`forced_by`] logs ended grants.

mod forced_by;
mod messages;
mod pages;
mod requests;

pub use forced_by::{ForcedBy, seen};
pub use messages::{Named, count, event, raw, state, status, waiter};
pub use pages::{List, given_limit, unknown_page};
pub use requests::{end_request, grant_id, holder_prefix, name_prefix, reason, watched_scope};
