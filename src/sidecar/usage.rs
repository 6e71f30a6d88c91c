//! The error of a wrong command line.

/// Why the command line is wrong; names the flag and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub(crate) String);
