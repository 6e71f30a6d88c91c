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

/// More than the largest content needs.
const CONTENT_BYTES: usize = 256;

/// The content of a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The value.
    pub value: u64,
    /// How many writes were accepted.
    pub writes: u64,
    /// Of those, writes of a value that was not computed from the value that
    /// they replaced: another update was lost.
    pub lost: u64,
    /// How many times a value was read and then found again.
    pub repeated_reads: u64,
    /// How many times a value was read and then found changed.
    pub changed_reads: u64,
    /// Calls refused because of their token.
    pub refused: u64,
    /// The greatest token of a write.
    pub write_fence: i64,
    /// The greatest token of a read.
    pub read_fence: i64,
}

impl Content {
    fn read(&mut self, token: i64) -> u64 {
        self.read_fence = self.read_fence.max(token);
        self.value
    }
}

/// A token that is older than that of an earlier access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale; {fence} was seen already")]
pub struct Stale {
    /// The token.
    pub token: i64,
    /// The token that it has to reach.
    pub fence: i64,
}

/// A register in a file; each access is atomic among processes.
#[derive(Debug)]
pub struct Register {
    file: File,
    checks_tokens: bool,
}

impl Register {
    /// Opens or creates it. Whether it checks tokens is a property of the
    /// register, not of its users.
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

    /// The value. No writer with an older token may write from then on. Readers may still
    /// read, because they may hold together with this one.
    pub fn read(&mut self, token: i64) -> anyhow::Result<Result<u64, Stale>> {
        self.access(token, |content| content.write_fence, |content| content.read(token))
    }

    /// The value once more, which was `first` when the same holder read it before.
    pub fn read_again(&mut self, token: i64, first: u64) -> anyhow::Result<Result<(), Stale>> {
        let again = |content: &mut Content| {
            let is_changed = content.read(token) != first;
            content.changed_reads += u64::from(is_changed);
            content.repeated_reads += u64::from(!is_changed);
        };
        self.access(token, |content| content.write_fence, again)
    }

    /// Writes `value`, which was computed from `base`.
    pub fn write(
        &mut self,
        token: i64,
        base: u64,
        value: u64,
    ) -> anyhow::Result<Result<(), Stale>> {
        let write = |content: &mut Content| {
            content.write_fence = content.write_fence.max(token);
            content.lost += u64::from(content.value != base);
            content.writes += 1;
            content.value = value;
        };
        self.access(token, |content| content.write_fence.max(content.read_fence), write)
    }

    /// Its content.
    pub fn content(&mut self) -> anyhow::Result<Content> {
        flock(&self.file, FlockOperation::LockShared)?;
        let content = self.load();
        flock(&self.file, FlockOperation::Unlock)?;
        content
    }

    fn access<T>(
        &mut self,
        token: i64,
        fence: impl FnOnce(&Content) -> i64,
        change: impl FnOnce(&mut Content) -> T,
    ) -> anyhow::Result<Result<T, Stale>> {
        flock(&self.file, FlockOperation::LockExclusive)?;
        let result = self.access_locked(token, fence, change);
        flock(&self.file, FlockOperation::Unlock)?;
        result
    }

    fn access_locked<T>(
        &mut self,
        token: i64,
        fence: impl FnOnce(&Content) -> i64,
        change: impl FnOnce(&mut Content) -> T,
    ) -> anyhow::Result<Result<T, Stale>> {
        let mut content = self.load()?;
        let fence = fence(&content);
        let result = if self.checks_tokens && token < fence {
            content.refused += 1;
            Err(Stale { token, fence })
        } else {
            Ok(change(&mut content))
        };
        // One write of constant size: a killed process leaves it whole.
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
    fn readers_that_hold_together_are_not_refused_for_each_other() {
        let (mut register, _folder) = register(true);
        assert_eq!(register.read(1).unwrap(), Ok(0));
        assert_eq!(register.read(2).unwrap(), Ok(0));
        assert_eq!(register.read_again(1, 0).unwrap(), Ok(()));
        assert_eq!(register.content().unwrap().repeated_reads, 1);
    }

    #[test]
    fn a_reader_from_before_a_write_is_refused_after_it() {
        let (mut register, _folder) = register(true);
        assert_eq!(register.read(1).unwrap(), Ok(0));
        assert_eq!(register.write(2, 0, 1).unwrap(), Ok(()));
        let stale = Stale { token: 1, fence: 2 };
        assert_eq!(register.read_again(1, 0).unwrap(), Err(stale));
        assert_eq!(register.content().unwrap().changed_reads, 0);
    }

    #[test]
    fn a_register_that_checks_no_tokens_lets_a_reader_see_half_of_a_change() {
        let (mut register, _folder) = register(false);
        register.read(1).unwrap().unwrap();
        register.write(2, 0, 1).unwrap().unwrap();
        register.read_again(1, 0).unwrap().unwrap();
        assert_eq!(register.content().unwrap().changed_reads, 1);
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
