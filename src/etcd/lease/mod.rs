//! Leases: taken for a grant, kept for reuse, kept alive, and revoked.

pub(crate) mod keep_alives;
pub(crate) mod leases;
pub(crate) mod pool;
pub(crate) mod resolve;
mod revocations;
pub(crate) mod taken;
pub(crate) mod ttl;
