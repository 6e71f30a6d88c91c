//! Grants: finding them in etcd, writing each under its own lease, and the cache of this
//! process's own.

pub(crate) mod contention;
pub(crate) mod find;
pub(crate) mod local;
pub(crate) mod local_grant;
pub(crate) mod readers;
pub(crate) mod write;
