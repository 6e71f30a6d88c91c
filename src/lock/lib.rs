//! The domain: what a lock is, what is asked of a backend, and what every
//! backend shares.
//!
//! Nothing here knows a transport or a client library. Edges (the component,
//! the sidecar, the Redis front) call [`Store`]; backends implement [`Backend`].
//!
//! ```text
//! edge ──▶ Store ── resolves TTLs, bounds the time, undoes what nobody received
//!            │
//!            ▼
//!         Backend ── five verbs: try, lock, renew, unlock, ping; and `inspect`
//! ```

mod abandon;
mod acquire;
mod backend;
mod clock;
mod deadlines;
mod error;
mod grant_ids;
mod granted;
mod ids;
pub mod inspect;
mod instant;
mod join;
mod kind;
pub mod observe;
pub mod properties;
mod receipt;
mod registry;
mod release;
mod request;
mod settings;
mod settle;
mod store;
mod token;
mod ttl;
mod violation;
mod waiters;

pub use abandon::{Abandoned, Abandonment};
pub use backend::{Attempt, Backend, BackendError, Feature, Grant, Renewal, Renewed};
pub use clock::Clock;
pub use deadlines::{answered_by, read_by};
pub use error::{LockError, Reason};
pub use granted::Granted;
pub use ids::{AttemptId, GrantId, Holder, LockId, RequestId, ResourceId, check_text};
#[cfg(any(test, feature = "test-util"))]
pub use instant::suspend;
pub use instant::{Instant, count_suspensions, sleep_until};
pub use kind::{Connect, Context, Kind, Kinds, OpenError, UrlForm};
pub use receipt::Receipt;
pub use release::{Release, ReleaseOf, Target};
pub use request::{AcquireRequest, Mode, RenewRequest, UnlockRequest};
pub use settings::Settings;
pub use settle::UNSETTLED_MAX;
pub use store::Store;
pub use token::FencingToken;
pub use ttl::{Ttl, drift_allowance, safe_deadline};
pub use violation::Violation;
pub use waiters::{WaiterBudget, WaiterSlot};
