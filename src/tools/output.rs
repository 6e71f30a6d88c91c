//! Where a command writes its result.

use std::io::{self, IsTerminal as _, StdoutLock, Write as _};

/// The standard output. Lines are buffered until [`Output::flush`].
pub struct Output {
    out: io::BufWriter<StdoutLock<'static>>,
    columns: Option<usize>,
}

impl Output {
    /// That of the process.
    #[must_use]
    pub fn of_process() -> Self {
        let stdout = io::stdout();
        let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout));
        let columns = size.and_then(Result::ok).map(|size| size.ws_col);
        Self {
            out: io::BufWriter::new(stdout.lock()),
            columns: columns.filter(|columns| *columns > 0).map(usize::from),
        }
    }

    /// The width of the terminal, if it is one.
    #[must_use]
    pub fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Whether it is a terminal, where names must not move the cursor.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes a line.
    pub fn line(&mut self, line: &str) -> io::Result<()> {
        self.out.write_all(line.as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Prints a line for people. That nobody reads it is no error.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
