//! Everything between a socket and a service, for the component and the sidecar alike.
//!
//! - [`acceptor`]: accepts connections; [`server`]: serves a router on them; [`config`]: its
//!   limits.
//! - [`listener`]: TCP ports and Unix sockets; [`socket`]: Unix sockets that never take the
//!   place of a live one.
//! - [`connection`]: an accepted connection. It closes peers that do not send in time
//!   ([`read_timeout`]), delays flushes ([`cork`](leasehold_util::cork)) and settles the grants whose answers it
//!   writes ([`answers`]).
//! - [`exchange`]: whether a call is under way on an HTTP/1 connection; [`accepted`]: tells
//!   when its client has closed it.
//! - [`quiet`]: how long a drain waits for holders.
//! - [`peer`]: the process that made a connection.
//! - [`request_budget`]: limits the bytes and the time of incomplete requests;
//!   [`message_framing`]: where the messages of a stream end.
//! - [`delivery`]: releases a grant whose response was not delivered.
//! - [`completed`]: work that goes on although its caller has gone.
//! - [`inspection`]: what both edges do alike to show the locks.
//! - [`status`]: errors, described once for gRPC and HTTP; [`wire`]: durations, times and
//!   deadlines.

pub(crate) mod accepted;
pub(crate) mod acceptor;
pub(crate) mod answers;
pub(crate) mod completed;
pub(crate) mod config;
pub(crate) mod connection;
pub(crate) mod delivery;
mod exchange;
pub(crate) mod inspection;
pub(crate) mod listener;
mod message_framing;
pub(crate) mod peer;
pub(crate) mod quiet;
mod read_timeout;
pub(crate) mod request_budget;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod status;
pub(crate) mod wire;
