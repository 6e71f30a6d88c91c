//! What the tests share: a world of their own in a temporary folder.

use leasehold_reliability::world::{Backend, Settings, World};
use tempfile::TempDir;

/// A world with two processes (one on memory), and the folder of its logs.
pub(crate) async fn start(backend: Backend, seed: u64) -> (World, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        backend,
        leasehold: leasehold_testkit::leasehold::program(),
        etcd: "etcd".into(),
        processes: 2,
        folder: folder.path().to_owned(),
    };
    (World::start(&settings, seed).await.unwrap(), folder)
}
