//! Connections that can be cut.

use std::{io, net::Shutdown, os::unix::net::UnixStream as StdUnixStream, path::Path};

use parking_lot::Mutex;
use tokio::net::UnixStream;

/// The sockets of a connection.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    sockets: Mutex<Vec<StdUnixStream>>,
}

impl Wire {
    pub(crate) async fn connect(&self, socket: &Path) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(socket).await?.into_std()?;
        self.sockets.lock().push(stream.try_clone()?);
        UnixStream::from_std(stream)
    }

    /// Closes the connection abruptly, as if the process had died.
    pub(crate) fn cut(&self) {
        for socket in self.sockets.lock().drain(..) {
            // The store may have closed the socket already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
