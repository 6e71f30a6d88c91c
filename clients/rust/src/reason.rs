//! The reasons that the crate gives or looks for.

pub(crate) const INVALID_REQUEST: &str = "INVALID_REQUEST";
pub(crate) const LOCK_LOST: &str = "LOCK_LOST";
pub(crate) const LOCK_NOT_FOUND: &str = "LOCK_NOT_FOUND";
pub(crate) const RESOURCE_LOCKED: &str = "RESOURCE_LOCKED";
pub(crate) const SHUTTING_DOWN: &str = "SHUTTING_DOWN";
pub(crate) const UNAVAILABLE: &str = "UNAVAILABLE";
pub(crate) const WAIT_DEADLINE: &str = "WAIT_DEADLINE";
