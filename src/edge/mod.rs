//! What both edges, the pluggable component and the sidecar, know of their
//! transport: whether it took the answer that carries a grant.
//!
//! - [`writes`]: what a connection has written.
//! - [`delivery`]: settles a grant by what became of its answer.

pub(crate) mod delivery;
pub(crate) mod writes;
