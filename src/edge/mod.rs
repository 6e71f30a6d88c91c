//! What both edges, the pluggable component and the sidecar, share.
//!
//! - [`intake`]: bounds what has not come whole.
//! - [`writes`]: what a connection has written; [`delivery`]: settles a grant by
//!   what became of its answer.
//! - [`peer`]: the process that made a connection.
//! - [`status`]: errors as gRPC statuses; [`wire`]: durations and deadlines.

pub(crate) mod delivery;
pub(crate) mod intake;
pub(crate) mod peer;
pub(crate) mod status;
pub(crate) mod wire;
pub(crate) mod writes;
