//! Inspection, which both edges serve.
//!
//! [`calls`] has the calls, under the [`names`] of their callers; [`requests`] reads requests,
//! [`pages`] their pages; [`messages`] writes responses, and [`json`] their JSON;
//! [`forced_by`] logs ended grants.

mod calls;
mod forced_by;
pub mod json;
mod messages;
mod names;
mod own_names;
mod pages;
mod requests;

pub use calls::Inspector;
pub use forced_by::{ForcedBy, force_unlock};
pub use names::{Named, Names};
pub use own_names::OwnNames;
pub use pages::{given_limit, unknown_page};
pub use requests::{grant_id, name_prefix, reason};
