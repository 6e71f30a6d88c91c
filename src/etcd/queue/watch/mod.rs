//! Watches of queues, many over one stream.

mod serve;
pub(super) mod stream;
pub(crate) mod streams;
