//! Seeing who holds what: what a backend tells of its locks, and to whom it may be told.
//!
//! Nothing here contains a lock ID, a request ID or a fencing token (trap 25).

mod end;
mod list;
mod mirror;
mod port;
mod view;
mod wanted;
mod watch;

pub use end::{EndOf, EndOutcome, EndRequest, Ended, OnEnd};
pub use list::{Listing, Scope};
pub use mirror::Mirror;
pub use port::{Cursor, Inspect, PAGE_BYTES_MAX, Page, PageRequest, Selection};
pub use view::{EndCause, EndedGrant, GrantView, Inspected, LockView, WaiterView};
pub use wanted::Wanted;
pub(super) use watch::Watches;
pub use watch::{Watch, WatchEvent};

/// How many grants a [`LockView`] in a list or in a watch has at most. `grants_total` tells
/// how many there are.
pub const GRANTS_SHOWN_MAX: usize = 100;
