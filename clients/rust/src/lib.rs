//! Distributed locks of leasehold, through its sidecar: a lost lock cancels the work under it.
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold_client::{Error, Locks};
//!
//! # async fn charge(_: &str, _: i64) -> Result<u32, std::io::Error> { Ok(1) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::new("lockstore")?;
//! let paid = locks
//!     .lock("order-1")
//!     .wait(Duration::from_secs(10))
//!     .run(async |lock| charge("order-1", lock.token()).await)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Locks`] is the client: a store of a sidecar.
//! - [`Locks::lock`] waits for the lock, [`Locks::try_lock`] does not. Both return a
//!   [`LockBuilder`] with the options.
//! - [`run`](LockBuilder::run) holds the lock while a future runs, and drops the future when the
//!   lock is lost. [`acquire`](LockBuilder::acquire) returns the [`Lock`] itself, which signals
//!   its loss but cannot stop the work.
//! - [`Lock::token`] is the fencing token. Pass it to the resource that the lock guards, and let
//!   the resource refuse a smaller one: no client can stop a process that is suspended between a
//!   check and a write.
//!
//! # When a lock is lost
//!
//! The lock's life is the life of a gRPC stream to the sidecar. It is lost when the stream reports
//! it or breaks, when the sidecar answers that it does not hold it any more, and when nobody has
//! confirmed it for so long that the store could have given it to somebody else.
//! [`LockLost::cause`] names which.
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any time.
//!
//! | future | what dropping it does |
//! |---|---|
//! | [`run`](LockBuilder::run) | drops the work, then closes the stream, which releases the lock |
//! | [`acquire`](LockBuilder::acquire) | withdraws the request |
//! | [`Lock::unlock`] | nothing once it was polled: the unlock goes on in a task of its own |
//! | [`Lock::lost`] | nothing; it may be called again |
//!
//! # Time
//!
//! The crate reads [`tokio::time::Instant`]. That clock is monotonic. It runs while the process
//! is suspended, but on Linux and macOS not while the machine is. In a test with paused time
//! (`tokio::time::pause`) the clock jumps forward whenever all tasks wait, so a lock of a real
//! sidecar would be lost at once as [`Cause::Unconfirmed`].
//!
//! # Runtime
//!
//! A Tokio runtime with the time and I/O drivers is needed. Each lock has one task.

mod address;
mod builder;
mod cause;
mod client;
mod clock;
mod error;
mod held;
mod keeper;
mod lock;
mod locks;
mod open;
mod options;
mod reason;
mod reentrant;
mod run;
mod status;

/// The raw gRPC messages and clients of `leasehold.v1`, for calls that this crate does not wrap:
/// forced unlocks, changes of the limit of a lock, inspection.
///
/// [`Locks::channel`] returns the channel to use them with. They do not send the API token. The
/// `Debug` form of a message shows all of it: lock IDs and request IDs are secrets.
pub mod raw {
    #![allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
    include!("generated/leasehold.v1.rs");
}

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use builder::{LockBuilder, Tries, Waits};
pub use cause::Cause;
pub use error::{Error, Failure, LockLost, NotAcquired, RunError};
pub use lock::Lock;
pub use locks::{Locks, LocksBuilder};
pub use options::Mode;
