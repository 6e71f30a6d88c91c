//! Finds the program of a command before the lock is waited for.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use leasehold_util::exit;

/// Where programs are looked for without PATH, as execvp(3) does.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Why a command cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("{0}: command not found")]
    NotFound(String),
    #[error("{0}: cannot be executed")]
    NotExecutable(String),
}

impl Unusable {
    pub(crate) fn exit(&self) -> u8 {
        match self {
            Self::NotFound(_) => exit::NOT_FOUND,
            Self::NotExecutable(_) => exit::CANNOT_RUN,
        }
    }
}

/// Checks that there is such a program.
pub(crate) fn check(program: &OsStr) -> Result<(), Unusable> {
    let path = env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    check_in(program, &path)
}

fn check_in(program: &OsStr, path: &OsStr) -> Result<(), Unusable> {
    let shown = || program.to_string_lossy().escape_debug().to_string();
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![program.into()]
    } else if program.is_empty() {
        Vec::new()
    } else {
        env::split_paths(path).map(|folder| folder.join(program)).collect()
    };
    if candidates.iter().any(|candidate| is_executable(candidate)) {
        return Ok(());
    }
    if candidates.iter().any(|candidate| candidate.exists()) {
        return Err(Unusable::NotExecutable(shown()));
    }
    Err(Unusable::NotFound(shown()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file()) && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(program: &str, path: &str) -> Result<(), u8> {
        check_in(program.as_ref(), path.as_ref()).map_err(|unusable| unusable.exit())
    }

    #[test]
    fn a_program_is_found_in_the_path_or_by_its_own() {
        assert_eq!(checked("sh", "/nowhere:/bin"), Ok(()));
        assert_eq!(checked("/bin/sh", ""), Ok(()));
        assert_eq!(checked("sh", "/nowhere"), Err(127));
        assert_eq!(checked("", "/bin"), Err(127));
        assert_eq!(checked("/nowhere/sh", "/bin"), Err(127));
    }

    #[test]
    fn what_is_there_and_cannot_be_run_is_another_error() {
        assert_eq!(checked("/etc/passwd", ""), Err(126));
        assert_eq!(checked("passwd", "/etc"), Err(126));
        assert_eq!(checked("/etc", ""), Err(126));
    }
}
