//! The register: a file that several processes share.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Seek as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// More than the greatest content takes.
const CONTENT_BYTES: usize = 256;

/// What is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The value.
    pub value: u64,
    /// How many writes were accepted.
    pub writes: u64,
    /// Of those, writes of a value that was not computed from the one that
    /// they replaced: what somebody else wrote is lost.
    pub lost: u64,
    /// Calls refused because of their token.
    pub refused: u64,
    /// The greatest token that it has seen.
    pub fence: i64,
}

/// A token that is not the greatest any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale; {fence} was seen already")]
pub struct Stale {
    /// The token.
    pub token: i64,
    /// The greatest seen.
    pub fence: i64,
}

/// A register in a file; each access is atomic among processes.
#[derive(Debug)]
pub struct Register {
    file: File,
    checks_tokens: bool,
}

impl Register {
    /// Opens it, or makes it. Whether it checks tokens is its own affair, not
    /// its users'.
    pub fn open(path: &Path, checks_tokens: bool) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| path.display().to_string())?;
        Ok(Self { file, checks_tokens })
    }

    /// The value. A read is fenced as well: from then on older holders are
    /// refused, so that what was read stays true until it is written back.
    pub fn read(&mut self, token: i64) -> anyhow::Result<Result<u64, Stale>> {
        self.access(token, |content| content.value)
    }

    /// Puts `value` in, which was computed from `base`.
    pub fn write(
        &mut self,
        token: i64,
        base: u64,
        value: u64,
    ) -> anyhow::Result<Result<(), Stale>> {
        self.access(token, |content| {
            content.lost += u64::from(content.value != base);
            content.writes += 1;
            content.value = value;
        })
    }

    /// Everything in it.
    pub fn content(&mut self) -> anyhow::Result<Content> {
        flock(&self.file, FlockOperation::LockShared)?;
        let content = self.load();
        flock(&self.file, FlockOperation::Unlock)?;
        content
    }

    fn access<T>(
        &mut self,
        token: i64,
        change: impl FnOnce(&mut Content) -> T,
    ) -> anyhow::Result<Result<T, Stale>> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        let result = self.access_locked(token, change);
        flock(&self.file, FlockOperation::Unlock)?;
        result
    }

    fn access_locked<T>(
        &mut self,
        token: i64,
        change: impl FnOnce(&mut Content) -> T,
    ) -> anyhow::Result<Result<T, Stale>> {
        let mut content = self.load()?;
        let stale = Stale { token, fence: content.fence };
        let result = if self.checks_tokens && token < content.fence {
            content.refused += 1;
            Err(stale)
        } else {
            content.fence = content.fence.max(token);
            Ok(change(&mut content))
        };
        // One write of one size: a process that is killed leaves it whole.
        let mut bytes = serde_json::to_vec(&content)?;
        bytes.resize(bytes.len().max(CONTENT_BYTES), b' ');
        self.file.write_all_at(&bytes, 0)?;
        Ok(result)
    }

    fn load(&mut self) -> anyhow::Result<Content> {
        let mut bytes = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(Content::default());
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(checks_tokens: bool) -> (Register, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Register::open(&folder.path().join("register"), checks_tokens).unwrap(), folder)
    }

    #[test]
    fn a_stale_write_is_refused_and_nothing_is_lost() {
        let (mut register, _folder) = register(true);
        assert_eq!(register.read(1).unwrap(), Ok(0));
        assert_eq!(register.read(2).unwrap(), Ok(0));
        assert_eq!(register.write(1, 0, 1).unwrap(), Err(Stale { token: 1, fence: 2 }));
        assert_eq!(register.write(2, 0, 1).unwrap(), Ok(()));
        let content = register.content().unwrap();
        assert_eq!((content.value, content.writes, content.lost), (1, 1, 0));
    }

    #[test]
    fn a_register_that_checks_no_tokens_loses_an_update() {
        let (mut register, _folder) = register(false);
        register.read(1).unwrap().unwrap();
        register.read(2).unwrap().unwrap();
        register.write(2, 0, 1).unwrap().unwrap();
        register.write(1, 0, 1).unwrap().unwrap();
        let content = register.content().unwrap();
        assert_eq!((content.value, content.writes, content.lost), (1, 2, 1));
    }
}
