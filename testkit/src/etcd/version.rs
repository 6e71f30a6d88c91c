//! Where the etcd binaries are.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::extent;

/// A version that the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Debian's.
    V34,
    /// Built from its Go module.
    V36,
}

impl Version {
    /// Its name in test names.
    pub fn name(self) -> &'static str {
        match self {
            Self::V34 => "etcd34",
            Self::V36 => "etcd36",
        }
    }

    /// Why the tests skip it, if they do.
    pub fn left_out(self) -> Option<&'static str> {
        if self == Self::V36 { extent::left_out() } else { None }
    }

    /// Its program, or the reason why there is none.
    pub fn program(self) -> Result<PathBuf, String> {
        match self {
            Self::V34 => {
                let found = ["/usr/bin/etcd", "/usr/local/bin/etcd"];
                let found = found.iter().map(PathBuf::from).find(|path| path.exists());
                found.ok_or_else(|| "there is no etcd; apt-get install etcd-server".to_owned())
            }
            Self::V36 => built(),
        }
    }
}

/// Builds etcd 3.6 once; cached under `target/`.
fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let program = root.join("target/etcd36/etcd");
        if program.exists() {
            return Ok(program);
        }
        let output = Command::new("go")
            .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(root.join("tests/etcd36"))
            .output()
            .map_err(|error| format!("there is no Go to build etcd 3.6 with: {error}"))?;
        if output.status.success() {
            Ok(program)
        } else {
            Err(format!("etcd 3.6 does not build: {}", String::from_utf8_lossy(&output.stderr)))
        }
    };
    BUILT.get_or_init(build).clone()
}
