//! Everything between a socket and a service, for all edges.
//!
//! - [`acceptor`]: accepts connections; [`server`]: serves a router on them; [`config`]: its
//!   limits.
//! - [`listener`]: TCP ports and Unix sockets; [`socket`]: Unix sockets that never take the
//!   place of a live one.
//! - [`accepted`]: an accepted connection. It detects when its peer has closed it, and settles
//!   the grants whose answers it writes ([`answers`]). The server closes it if its peer does not
//!   start its protocol in time ([`preface`]), and delays its flushes
//!   ([`cork`](leasehold_util::cork)).
//! - [`http1_call`]: whether a call is under way on an HTTP/1 connection.
//! - [`flags`]: the values of flags that say where to listen.
//! - [`quiet`]: how long a drain waits for holders.
//! - [`peer`]: the process that made a connection.
//! - [`request_budget`]: limits the bytes and the time of incomplete requests;
//!   [`message_framing`]: where the messages of a stream end.
//! - [`delivery`]: releases a grant whose response was not delivered.
//! - [`completed`]: work that continues if its caller goes away.
//! - [`inspection`]: the part of inspection that both edges share.
//! - [`status`]: errors, described once for gRPC and HTTP; [`wire`]: durations, times and
//!   deadlines.

pub mod accepted;
pub mod acceptor;
pub mod answers;
mod completed;
pub mod config;
pub mod delivery;
pub mod flags;
mod http1_call;
pub mod inspection;
pub mod listener;
mod message_framing;
pub mod peer;
mod preface;
pub mod quiet;
pub mod request_budget;
pub mod server;
pub mod socket;
pub mod status;
pub mod wire;
