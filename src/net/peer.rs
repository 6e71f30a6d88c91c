//! The process that made a connection.

use tokio::net::UnixStream;

/// The process that connected to a Unix socket, as the system reports it. The client cannot
/// forge it. It may be a daprd or a sidecar in between instead of the app behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Missing on systems that do not report it. Zero for a process of another PID namespace,
    /// which cannot be seen from here.
    pub pid: Option<i32>,
}

impl Peer {
    /// `None` if the system does not report it.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        let told = stream.peer_cred().ok()?;
        Some(Self { uid: told.uid(), pid: told.pid() })
    }
}
