//! Watches of queues, many over one stream.

pub(crate) mod serve;
pub(crate) mod stream;
