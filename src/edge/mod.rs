//! What both edges, the pluggable component and the sidecar, share.
//!
//! - [`request_budget`]: limits the bytes and the time of unfinished requests.
//! - [`flush_tracker`]: what a connection has flushed; [`delivery`]: releases a grant whose
//!   response was not delivered.
//! - [`peer`]: the process that made a connection.
//! - [`status`]: errors, described once for gRPC and HTTP; [`wire`]: durations and deadlines.

pub(crate) mod delivery;
pub(crate) mod flush_tracker;
pub(crate) mod peer;
pub(crate) mod request_budget;
pub(crate) mod status;
pub(crate) mod wire;
