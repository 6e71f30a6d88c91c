//! What is wrong with a document, and where.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// One document of one file. `Display` names both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    file: Arc<PathBuf>,
    document: usize,
}

impl Origin {
    /// The document of this number, from 1, in `file`.
    pub(super) fn new(file: Arc<PathBuf>, document: usize) -> Self {
        Self { file, document }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file.display(), self.document)
    }
}

/// Why a document, or a whole file, was skipped. `Display` names file,
/// document, line and field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) file: Arc<PathBuf>,
    /// `None` if the whole file has the problem.
    pub(super) document: Option<usize>,
    pub(crate) fault: Fault,
}

impl Problem {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(document) = self.document {
            write!(f, ", document {document}")?;
        }
        if let Some(line) = self.fault.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.fault.text)
    }
}

/// What is wrong, without the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The line in the file, from 1.
    pub(crate) line: Option<usize>,
    pub(crate) text: String,
}

impl Fault {
    pub(super) fn at(line: usize, text: impl Into<String>) -> Self {
        Self { line: Some(line), text: text.into() }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self { line: None, text }
    }
}
