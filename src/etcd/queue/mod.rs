//! Queues: who waits for a resource, in which order, and whose turn it is.

mod follow;
mod list;
pub(crate) mod mirror;
pub(crate) mod place;
pub(crate) mod queues;
pub(crate) mod session;
pub(crate) mod sweep;
mod waiters;
mod watch;
