//! The connection to etcd: requests, their failures, and reads.

pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod failure;
pub(crate) mod link;
pub(crate) mod reads;
pub(crate) mod silence;
pub(crate) mod terms;
