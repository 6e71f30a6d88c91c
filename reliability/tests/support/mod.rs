//! What the tests share: a world of their own in a temporary folder.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use leasehold_reliability::world::{Backend, Settings, World};
use tempfile::TempDir;

/// The `leasehold` binary: `LEASEHOLD`, else the one of the same build.
pub(crate) fn leasehold() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> PathBuf {
    if let Some(named) = std::env::var_os("LEASEHOLD") {
        return named.into();
    }
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().and_then(Path::parent).unwrap().join("leasehold");
    if !beside.exists() {
        // Only this crate's tests were asked for.
        let mut build = Command::new(env!("CARGO"));
        let built = build.args(["build", "--quiet", "-p", "leasehold", "--bin", "leasehold"]);
        assert!(built.status().unwrap().success(), "leasehold does not build");
    }
    beside
}

/// A world with two processes (one on memory), and the folder of its logs.
pub(crate) async fn start(backend: Backend, seed: u64) -> (World, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        backend,
        leasehold: leasehold(),
        etcd: "etcd".into(),
        processes: 2,
        folder: folder.path().to_owned(),
    };
    (World::start(&settings, seed).await.unwrap(), folder)
}
