//! What the component and the sidecar share of their sockets.
//!
//! - [`socket`]: Unix sockets that never take another's place.
//! - [`accepted`]: an accepted connection that tells when its peer has closed it.
//! - [`preface`]: closes connections that do not begin to send in time.
//! - [`http1`]: what an HTTP/1 connection is doing, and the limits that follow.

pub(crate) mod accepted;
pub(crate) mod http1;
pub(crate) mod preface;
pub(crate) mod socket;
