//! Inspection: who holds what and who waits, as a backend reports it.
//!
//! Nothing here contains a lock ID, a request ID or a fencing token (trap 25).

mod end;
mod list;
mod mirror;
mod port;
mod running;
mod scope;
mod subscriptions;
mod view;
mod watch;

pub use end::{EndOf, EndOutcome, EndRequest, Ended, OnEnd};
pub use list::Listing;
pub use mirror::Mirror;
pub use port::{Cursor, GrantPage, Inspect, PAGE_BYTES_MAX, Page, PageRequest, Selection};
pub(super) use running::Watches;
pub use scope::Scope;
pub use subscriptions::WatchFilter;
pub use view::{EndCause, EndedGrant, GrantView, Inspected, LockView, WaiterView, WatchEvent};
pub use watch::Watch;

/// How many grants a [`LockView`] in a list or in a watch has at most. `grants_total` is
/// the number of all.
pub const GRANTS_SHOWN_MAX: usize = 100;
