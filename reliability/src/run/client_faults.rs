//! The faults of client processes.

/// Faults of client processes. They excuse nothing.
pub(crate) const FAULTS: &[&str] = &["client-killed", "client-suspended"];
/// Faults of a client process with a crowd.
pub(crate) const CROWD_FAULTS: &[&str] =
    &["crowd-killed", "crowd-suspended", "crowd-killed-with-leasehold"];

/// Whether a fault is one of client processes.
pub(super) fn knows(name: &str) -> bool {
    FAULTS.contains(&name) || CROWD_FAULTS.contains(&name)
}
