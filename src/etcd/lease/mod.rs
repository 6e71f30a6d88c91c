//! Leases, and the grants of this process that live under them.

pub(crate) mod grants;
pub(crate) mod keeper;
pub(crate) mod keyed_mutex;
pub(crate) mod leases;
pub(crate) mod local_grant;
pub(crate) mod pool;
pub(crate) mod readers;
pub(crate) mod revocations;
pub(crate) mod taken;
