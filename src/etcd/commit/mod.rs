//! Writes, which are committed in groups.

pub(crate) mod batcher;
pub(crate) mod committer;
pub(crate) mod op;
