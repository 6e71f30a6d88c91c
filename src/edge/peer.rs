//! The process that made a connection.

use tokio::net::UnixStream;

/// Who connected to a Unix socket, as the system tells it. The client has no say
/// in it, but it is the process that connected: a daprd or a sidecar in between,
/// not the app behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) uid: u32,
    /// Missing on systems that do not tell it. Zero for a process that cannot
    /// be seen from here: one of another PID namespace.
    pub(crate) pid: Option<i32>,
}

impl Peer {
    /// `None` if the system does not tell.
    pub(crate) fn of(stream: &UnixStream) -> Option<Self> {
        let told = stream.peer_cred().ok()?;
        Some(Self { uid: told.uid(), pid: told.pid() })
    }
}
