//! The process that made a connection.

use tokio::net::UnixStream;

/// The process that connected to a Unix socket, as the system reports it. The client cannot
/// forge it. It may be a daprd or a sidecar instead of the app behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// `None` on systems that do not report it. Zero for a process of another PID namespace,
    /// which is not visible here.
    pub pid: Option<i32>,
}

impl Peer {
    /// `None` if the system does not report it.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        let credentials = stream.peer_cred().ok()?;
        Some(Self { uid: credentials.uid(), pid: credentials.pid() })
    }
}
