//! The faults that are done to client processes.

/// What is done to client processes. Nothing of it excuses leasehold.
pub(crate) const FAULTS: &[&str] = &["client-killed", "client-suspended"];
/// What is done to a client process whose clients are a crowd.
pub(crate) const CROWD_FAULTS: &[&str] =
    &["crowd-killed", "crowd-suspended", "crowd-killed-with-leasehold"];

/// Whether a fault is done to client processes.
pub(super) fn knows(name: &str) -> bool {
    FAULTS.contains(&name) || CROWD_FAULTS.contains(&name)
}
