//! The sidecar's Unix sockets, and the owner of the file at their path.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, symlink},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use leasehold_testkit::{leasehold::Leasehold, process::Signal};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{binary::component, harness::PATIENCE};

fn sidecar(folder: &Path) -> Leasehold {
    let folder = folder.to_str().unwrap();
    Leasehold::spawn(&["sidecar", "--app-id", "app", "--unix-domain-socket", folder])
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dapr-app-http.socket");
    (folder, path)
}

/// Leaves a socket that nobody listens at. It was never listened at: a program that another thread
/// starts has a copy of a listener until it is executed.
pub fn stale_socket(path: &Path) {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    socket.unwrap().bind(&socket2::SockAddr::unix(path).unwrap()).unwrap();
}

/// A socket accepts connections before its process has recorded the file, so an answer
/// is awaited.
async fn until_it_answers(path: &Path) {
    let give_up = Instant::now() + PATIENCE;
    while !answers(path) {
        assert!(Instant::now() < give_up, "it does not answer");
        sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn answers(path: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(path) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /v1.0/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut received = String::new();
    stream.write_all(request).is_ok()
        && stream.read_to_string(&mut received).is_ok_and(|_| !received.is_empty())
}

/// Asserts that it ends with exit code 1 and names the path and the flag.
fn is_refused(folder: &TempDir, path: &Path) {
    let mut sidecar = sidecar(folder.path());
    assert_eq!(sidecar.exited().code(), Some(1), "{}", sidecar.log());
    let log = sidecar.log();
    assert!(log.contains(path.to_str().unwrap()), "{log}");
    assert!(log.contains("--unix-domain-socket"), "{log}");
}

#[tokio::test]
async fn a_file_at_the_path_stays() {
    let (folder, path) = place();
    fs::write(&path, "precious").unwrap();
    is_refused(&folder, &path);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_symbolic_link_at_the_path_stays() {
    let (folder, path) = place();
    let target = folder.path().join("elsewhere");
    stale_socket(&target);
    symlink(&target, &path).unwrap();
    is_refused(&folder, &path);
    assert!(path.symlink_metadata().unwrap().is_symlink() && target.exists());
}

/// A suspended process does not accept, and its backlog may be full.
#[tokio::test]
async fn a_socket_that_accepts_nothing_is_alive() {
    let (folder, path) = place();
    let _listener = UnixListener::bind(&path).unwrap();
    let mut queued = Vec::new();
    loop {
        let stream = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
        let stream = stream.unwrap();
        stream.set_nonblocking(true).unwrap();
        if stream.connect(&socket2::SockAddr::unix(&path).unwrap()).is_err() {
            break;
        }
        queued.push(stream);
    }
    is_refused(&folder, &path);
    assert!(path.symlink_metadata().unwrap().file_type().is_socket());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_none_is_left_at_the_end() {
    let (folder, path) = place();
    stale_socket(&path);
    let mut sidecar = sidecar(folder.path());
    until_it_answers(&path).await;
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.exited().code(), Some(0));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_socket_of_a_successor_is_not_removed() {
    let (folder, path) = place();
    let mut sidecar = sidecar(folder.path());
    until_it_answers(&path).await;
    fs::remove_file(&path).unwrap();
    let _successor = UnixListener::bind(&path).unwrap();
    sidecar.signal(Signal::TERM);
    assert_eq!(sidecar.exited().code(), Some(0));
    assert!(UnixStream::connect(&path).is_ok());
}

/// One call on a new connection; returns the answer's status.
fn call(path: &Path, method: &str, body: &str) -> u16 {
    let mut stream = UnixStream::connect(path).unwrap();
    write!(
        stream,
        "{method} /v1.0-alpha2/lock/locks/r HTTP/1.1\r\nhost: localhost\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).unwrap();
    received.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Over a port the log names the app alone; over a Unix socket the system reports the
/// process.
#[tokio::test]
async fn an_unlock_by_force_is_logged_with_its_process() {
    let (folder, path) = place();
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "locks", "lock.memory", "[]");
    let (sockets, resources) = (folder.path().to_str(), yaml.path().to_str());
    let sidecar = Leasehold::spawn(&[
        "sidecar",
        "--app-id",
        "app",
        "--unix-domain-socket",
        sockets.unwrap(),
        "--resources-path",
        resources.unwrap(),
    ]);
    until_it_answers(&path).await;
    assert_eq!(call(&path, "POST", r#"{"immediate":true}"#), 200);
    assert_eq!(call(&path, "DELETE", r#"{"force":true,"reason":"gone"}"#), 204);
    let (uid, pid) = (fs::metadata("/proc/self").unwrap().uid(), std::process::id());
    let log = sidecar.whole_log();
    let line = log.lines().find(|line| line.contains("unlocked by force")).unwrap();
    let caller = format!("uid={uid} pid={pid} reason=\"gone\"");
    for received in
        [r#"store="locks" resource="lock||app||r" holder="app/"#, "grant_id=", &caller]
    {
        assert!(line.contains(received), "{received} is not in\n{line}");
    }
}
