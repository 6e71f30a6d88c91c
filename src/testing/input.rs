//! An input that is read piece by piece.

/// What is left of an input. Reading past its end gives zeros and empty texts, so that
/// every input is valid.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Reads from its beginning.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next eight bytes, big-endian.
    pub fn u64(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// The bytes up to the next line feed, without it.
    pub fn line(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == b'\n');
        let (line, rest) = match end {
            Some(end) => (&self.0[..end], &self.0[end + 1..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        line
    }

    /// The next line as text; empty if it is not UTF-8.
    pub fn text(&mut self) -> &'a str {
        std::str::from_utf8(self.line()).unwrap_or_default()
    }

    /// Everything that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
