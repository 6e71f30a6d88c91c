//! Grants: how one is found in etcd, how it is written under a lease of its own, and what this
//! process knows of those that it has written.

pub(crate) mod contention;
pub(crate) mod find;
pub(crate) mod local;
pub(crate) mod local_grant;
pub(crate) mod readers;
pub(crate) mod write;
