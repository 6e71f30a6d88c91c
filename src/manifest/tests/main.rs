//! Component YAML in folders: reading, reported problems, and changes of files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod broken;
mod changing;
mod reading;

use std::{fs, path::PathBuf};

use leasehold_manifest::{Environment, Resources};
use tempfile::TempDir;

/// A folder of YAML files that is removed with the test.
struct Folder(TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path().join(name)).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn resources(&self) -> Resources {
        Resources { folders: vec![self.path()], environment: nowhere() }
    }

    fn names(&self) -> Vec<String> {
        let loaded = self.resources().load().unwrap();
        loaded.components.into_iter().map(|component| component.name).collect()
    }
}

/// The environment of `app`, without any environment variable.
fn nowhere() -> Environment {
    Environment::with_env(Some("app"), |_| None)
}

/// A component of type `lock.memory`, with more lines appended.
fn component(name: &str, more: &str) -> String {
    format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: {name}\n\
         spec:\n  type: lock.memory\n  version: v1\n{more}"
    )
}
