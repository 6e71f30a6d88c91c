//! Memory.

use super::Kind;

/// The kind.
pub const KIND: Kind = Kind {
    name: "memory",
    read: |_| Box::new(|_| Box::pin(async { Err(super::OpenError::Unavailable("".into())) })),
};
