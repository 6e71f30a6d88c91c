//! Unix sockets that never replace a live server's socket and are removed at the end.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    time::{Instant, sleep, timeout},
};

/// The longest path that fits a socket address, without its terminating zero.
const PATH_BYTES_MAX: usize = 107;
/// How long another process may hold the folder's lock.
const FOLDER_WITHIN: Duration = Duration::from_secs(5);
const FOLDER_LOOK: Duration = Duration::from_millis(5);
/// How long to try to connect to an existing socket. A server that does not accept within
/// this time is busy, and so alive.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// The permissions of a socket, octal as in `chmod`; `0660` by default.
///
/// To connect, a process needs write permission. daprd under another user needs
/// either that user's group or `0666`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketMode(u32);

impl Default for SocketMode {
    fn default() -> Self {
        Self(0o660)
    }
}

impl std::fmt::Display for SocketMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && mode & 0o200 != 0 => Ok(Self(mode)),
            _ => Err("must be an octal mode from 0200 to 0777 that lets its owner write, \
                such as 0660 or 0666"
                .into()),
        }
    }
}

/// Why a socket could not be opened; names the file, and the flag to change.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SocketError(String);

impl SocketError {
    /// The file system refused.
    fn io(path: &Path, error: &io::Error) -> Self {
        Self(format!("{}: {error}", path.display()))
    }
}

/// A listening socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    // Dropped before the listener, so that the file never exists without a listener: a
    // starting daprd would wait for such a socket for ever.
    file: SocketFile,
    listener: UnixListener,
}

/// The file of a socket that this process listens on, removed when this is dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Socket {
    /// Opens a socket, and creates its folder if necessary. `flag` is the command-line flag
    /// for the folder, which errors name. Without a `mode` the socket has the permissions
    /// that the process's umask leaves.
    ///
    /// If two processes start at once, the lock on the folder lets one look for a live socket
    /// only after the other has opened its own. It is a lock on the folder itself: a lock file
    /// beside the sockets would make daprd warn, and a socket under a temporary name would
    /// make daprd dial it and wait for ever.
    pub async fn open(
        path: &Path,
        mode: Option<SocketMode>,
        flag: &'static str,
    ) -> Result<Self, SocketError> {
        let at = |error: io::Error| SocketError::io(path, &error);
        let (shown, bytes) = (path.display(), path.as_os_str().len());
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError(format!(
                "{shown} has {bytes} bytes; at most {PATH_BYTES_MAX} fit a socket's path: choose a \
                 shorter {flag}"
            )));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|error| {
            SocketError(format!(
                "cannot make the folder {} for the socket: {error}; choose another {flag}",
                folder.display()
            ))
        })?;
        let _alone = lock_folder(folder).await?;
        must_be_free(path, flag).await?;
        let listener = UnixListener::bind(path).map_err(at)?;
        let identity = identity(path).map_err(at)?;
        let socket = Self { file: SocketFile { path: path.to_owned(), identity }, listener };
        if let Some(mode) = mode {
            fs::set_permissions(path, Permissions::from_mode(mode.0)).map_err(at)?;
        }
        Ok(socket)
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Accepts the next connection. No connection is lost if this is cancelled.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have put its own socket there meanwhile.
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Locks the folder until the file is dropped.
async fn lock_folder(folder: &Path) -> Result<File, SocketError> {
    let io = |error: io::Error| SocketError::io(folder, &error);
    let handle = File::open(folder).map_err(io)?;
    let give_up = Instant::now() + FOLDER_WITHIN;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(TryLockError::Error(error)) => return Err(io(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= give_up => {
                return Err(SocketError(format!(
                    "another process has been starting in {} for {FOLDER_WITHIN:?}; stop it first",
                    folder.display()
                )));
            }
            Err(TryLockError::WouldBlock) => sleep(FOLDER_LOOK).await,
        }
    }
}

/// Makes sure that nothing exists at `path`. A stale socket is removed; a live one, or a file
/// that is no socket, is an error.
async fn must_be_free(path: &Path, flag: &'static str) -> Result<(), SocketError> {
    let io = |error: io::Error| SocketError::io(path, &error);
    let file = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(file) => file,
    };
    if !file.file_type().is_socket() {
        return Err(SocketError(format!(
            "{} is not a socket; move it away, or choose another {flag}",
            path.display()
        )));
    }
    match timeout(CONNECT_WITHIN, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            remove_if_there(path).map_err(io)
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Err(io(error)),
        // Connected, or too busy to accept: a live server either way.
        _ => Err(SocketError(format!(
            "{} is in use by a live server; stop that one, or choose another {flag}",
            path.display()
        ))),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener as BlockingListener, UnixStream as BlockingStream};

    use super::*;

    async fn open(path: &Path) -> Result<Socket, SocketError> {
        Socket::open(path, Some(SocketMode::default()), "--socket-folder").await
    }

    async fn refused(path: &Path) -> String {
        open(path).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        drop(BlockingListener::bind(&path).unwrap());
        let socket = open(&path).await.unwrap();
        assert!(BlockingStream::connect(socket.path()).is_ok());
    }

    #[tokio::test]
    async fn a_live_socket_is_never_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        let _live = BlockingListener::bind(&path).unwrap();
        assert!(refused(&path).await.contains("in use by a live server"));
        assert!(BlockingStream::connect(&path).is_ok());
    }

    #[tokio::test]
    async fn a_socket_of_our_own_is_not_taken_by_a_second_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        let _first = open(&path).await.unwrap();
        assert!(refused(&path).await.contains("in use by a live server"));
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        fs::write(&path, "precious").unwrap();
        assert!(refused(&path).await.contains("is not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn nothing_stays_behind_a_dropped_socket() {
        let folder = tempfile::tempdir().unwrap();
        drop(open(&folder.path().join("memory.sock")).await.unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn anothers_socket_of_the_same_name_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        let ours = open(&path).await.unwrap();
        fs::remove_file(&path).unwrap();
        let _theirs = BlockingListener::bind(&path).unwrap();
        drop(ours);
        assert!(BlockingStream::connect(&path).is_ok());
    }

    #[tokio::test]
    async fn of_many_that_start_at_once_over_a_stale_socket_one_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        drop(BlockingListener::bind(&path).unwrap());
        let starts = futures_util::future::join_all((0..16).map(|_| open(&path))).await;
        assert_eq!(starts.iter().filter(|start| start.is_ok()).count(), 1);
        assert!(BlockingStream::connect(&path).is_ok());
    }

    #[tokio::test]
    async fn nothing_but_the_socket_lies_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let _socket = open(&folder.path().join("memory.sock")).await.unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_path_that_does_not_fit_is_a_clear_error() {
        let path = PathBuf::from(format!("/tmp/{}/memory.sock", "x".repeat(100)));
        let error = open(&path).await.unwrap_err();
        assert!(error.to_string().contains("--socket-folder"), "{error}");
    }

    #[tokio::test]
    async fn the_permissions_are_those_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.sock");
        let _socket = Socket::open(&path, "0666".parse().ok(), "--flag").await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn a_mode_is_octal_and_lets_the_owner_write() {
        assert!("0660".parse::<SocketMode>().is_ok());
        for bad in ["", "8", "0444", "1777", "rw"] {
            assert!(bad.parse::<SocketMode>().is_err(), "{bad}");
        }
    }
}
