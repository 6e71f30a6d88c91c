//! The path, the owner and the permissions of sockets.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixListener,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use leasehold_testkit::{leasehold::Leasehold, process::Signal};
use tokio::time::Instant;

/// Fails a test instead of letting it hang.
const PATIENCE: Duration = Duration::from_secs(20);

fn mode(socket: &Path) -> u32 {
    fs::metadata(socket).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_stale_socket_is_replaced() {
    let mut first = Leasehold::serve("memory", &[]);
    let folder = first.folder().to_owned();
    first.signal(Signal::KILL);
    first.exited();
    assert!(first.socket("memory").exists(), "a killed process leaves its socket");
    let folder = folder.to_str().unwrap();
    let second = Leasehold::spawn(&["serve", "--store", "memory", "--socket-folder", folder]);
    first.ready("memory");
    drop(second);
}

#[test]
fn a_live_socket_is_never_taken() {
    let first = Leasehold::serve("memory", &[]);
    let folder = first.folder().to_str().unwrap();
    let mut second =
        Leasehold::spawn(&["serve", "--store", "memory", "--socket-folder", folder]);
    assert_eq!(second.exited().code(), Some(1));
    assert!(second.log().contains("in use by a live server"), "{}", second.log());
    first.ready("memory");
}

#[test]
fn a_file_that_is_no_socket_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.sock");
    fs::write(&path, "precious").unwrap();
    let folder = folder.path().to_str().unwrap();
    let mut leasehold =
        Leasehold::spawn(&["serve", "--store", "memory", "--socket-folder", folder]);
    assert_eq!(leasehold.exited().code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn when_one_socket_is_not_to_be_had_none_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("b.sock");
    let _live = UnixListener::bind(&live).unwrap();
    let in_folder = folder.path().to_str().unwrap();
    let mut leasehold = Leasehold::spawn(&[
        "serve",
        "--store",
        "memory=a",
        "--store",
        "memory=b",
        "--socket-folder",
        in_folder,
    ]);
    assert_eq!(leasehold.exited().code(), Some(1));
    assert!(!folder.path().join("a.sock").exists() && live.exists());
}

#[test]
fn the_permissions_are_those_asked_for() {
    let leasehold = Leasehold::serve("memory", &["--socket-mode", "0622"]);
    // A socket accepts connections before its permissions are set.
    let give_up = Instant::now() + PATIENCE;
    while mode(&leasehold.socket("memory")) != 0o622 {
        assert!(Instant::now() < give_up, "{:o}", mode(&leasehold.socket("memory")));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_of_dapr_s_variables_names_the_folder() {
    for variable in [
        "DAPR_COMPONENTS_SOCKETS_FOLDER",
        "DAPR_COMPONENT_SOCKETS_FOLDER",
        "DAPR_COMPONENT_SOCKET_FOLDER",
    ] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("made/for/it");
        let mut child = Command::new(leasehold_testkit::leasehold::program())
            .args(["serve", "--store", "memory"])
            .env_clear()
            .env(variable, &folder)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let appeared = appears(&folder.join("memory.sock"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(appeared, "{variable}");
    }
}

#[test]
fn a_path_that_no_address_holds_is_a_clear_error() {
    let folder = format!("/tmp/{}", "x".repeat(120));
    let mut leasehold = Leasehold::spawn(&["serve", "--socket-folder", &folder]);
    assert_eq!(leasehold.exited().code(), Some(1));
    assert!(leasehold.log().contains("--socket-folder"), "{}", leasehold.log());
}

#[test]
fn nothing_but_sockets_lies_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = folder.path().to_str().unwrap();
    let _leasehold =
        Leasehold::spawn(&["serve", "--store", "memory", "--socket-folder", in_folder]);
    assert!(appears(&folder.path().join("memory.sock")));
    for file in fs::read_dir(folder.path()).unwrap() {
        assert!(file.unwrap().file_type().unwrap().is_socket());
    }
}

fn appears(path: &Path) -> bool {
    let give_up = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while !path.exists() {
        if tokio::time::Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    true
}
