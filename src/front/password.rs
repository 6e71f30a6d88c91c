//! The password of a front.

use std::{fs, path::Path, sync::Arc};

use subtle::ConstantTimeEq as _;

/// What clients of a front must send first. Not shown by `Debug`.
#[derive(Clone)]
pub struct Password(Arc<str>);

impl Password {
    /// Takes a password; an empty one means that none is asked for.
    #[must_use]
    pub fn new(password: &str) -> Option<Self> {
        (!password.is_empty()).then(|| Self(password.into()))
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or its first line is empty: a front must not start without
    /// its password.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        Self::new(text.lines().next().unwrap_or_default())
            .ok_or_else(|| "its first line is empty; write the password there".to_owned())
    }

    /// Compares in a time that does not depend on where they differ.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        given.ct_eq(self.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_the_first_line_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "se cret\nnote\n").unwrap();
        let password = Password::read(&file).unwrap();
        assert!(password.is(b"se cret"));
        assert!(!password.is(b"se cre") && !password.is(b""));
        fs::write(&file, "\n").unwrap();
        assert!(Password::read(&file).unwrap_err().contains("is empty"));
    }
}
