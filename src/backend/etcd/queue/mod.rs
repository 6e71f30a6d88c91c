//! Queues: who waits for a resource, in which order, and whose turn it is.

pub(crate) mod follow;
pub(crate) mod list;
pub(crate) mod mirror;
pub(crate) mod place;
pub(crate) mod session;
pub(crate) mod sweep;
pub(crate) mod waiters;
pub(crate) mod watch;
