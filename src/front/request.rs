//! Requests of Redis clients: arrays of bulk strings, or lines of words.

use bytes::{Buf as _, Bytes, BytesMut};

/// The most arguments of a request, its command included.
pub(super) const ARGUMENTS_MAX: usize = 64;
/// The most bytes of a request. The longest known script has less than 4 KiB.
pub(super) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Input of this length contains a request or an error.
pub(super) const INPUT_BYTES_MAX: usize = REQUEST_BYTES_MAX + 2 * NUMBER_LINE_BYTES_MAX;
/// The first byte of a TLS client: the type of a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// The longest line of words.
const LINE_BYTES_MAX: usize = 1024;
/// The longest line that has only a number.
const NUMBER_LINE_BYTES_MAX: usize = 16;

/// A request: a command and its arguments. A line without words has neither.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(super) arguments: Vec<Bytes>,
    /// Whether it came as a line of words, as from telnet. A page in a browser can send such
    /// lines, too.
    pub(super) is_line: bool,
}

/// Shows no argument, because one of them may be a password or a lock ID.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = self.arguments.first().map(|command| String::from_utf8_lossy(command));
        write!(f, "Request({:?}, {} arguments)", command, self.arguments.len())
    }
}

/// Why the input is no request. The connection ends, because it is not known where the next
/// request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("Protocol error: a request has more than {ARGUMENTS_MAX} arguments")]
    TooManyArguments,
    #[error("Protocol error: a request has more than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("Protocol error: a number is missing or bad")]
    BadNumber,
    #[error("Protocol error: expected '$' before an argument")]
    NoBulkString,
    #[error("Protocol error: an argument does not end with CRLF")]
    NoEnd,
    #[error("Protocol error: quotes in a line are not read; send an array")]
    Quotes,
    #[error("Protocol error: a line has more than {LINE_BYTES_MAX} bytes")]
    LongLine,
    #[error(
        "Protocol error: this port speaks no TLS; connect without TLS, or start the front with a certificate"
    )]
    Tls,
}

/// Takes the first request out of `input`; `None` if it is not complete. Then nothing is taken.
pub(crate) fn take(input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    match input.first() {
        None => Ok(None),
        Some(b'*') => take_array(input),
        Some(&TLS_HANDSHAKE) => Err(ProtocolError::Tls),
        Some(_) => take_line(input),
    }
}

fn take_array(input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    let Some((count, mut at)) = number(input, 1)? else { return Ok(None) };
    // Redis ignores an empty array and a missing one.
    let count = usize::try_from(count).unwrap_or(0);
    if count > ARGUMENTS_MAX {
        return Err(ProtocolError::TooManyArguments);
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        match input.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(ProtocolError::NoBulkString),
        }
        let Some((length, begin)) = number(input, at + 1)? else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| ProtocolError::BadNumber)?;
        if length > REQUEST_BYTES_MAX || begin + length + 2 > REQUEST_BYTES_MAX {
            return Err(ProtocolError::TooLong);
        }
        let end = begin + length;
        match input.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoEnd),
        }
        ranges.push(begin..end);
        at = end + 2;
    }
    let taken = input.split_to(at).freeze();
    let arguments = ranges.into_iter().map(|range| taken.slice(range)).collect();
    Ok(Some(Request { arguments, is_line: false }))
}

/// Reads the number in the line that begins at `at`. Also returns where the next line begins.
fn number(input: &[u8], at: usize) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = input.get(at..).unwrap_or_default();
    let line = &line[..line.len().min(NUMBER_LINE_BYTES_MAX)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        let is_full = line.len() == NUMBER_LINE_BYTES_MAX;
        return if is_full { Err(ProtocolError::BadNumber) } else { Ok(None) };
    };
    let digits = line[..end].strip_suffix(b"\r").ok_or(ProtocolError::BadNumber)?;
    let is_plain = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-'));
    let number = str::from_utf8(digits).ok().filter(|_| is_plain);
    let number = number.and_then(|digits| digits.parse().ok());
    Ok(Some((number.ok_or(ProtocolError::BadNumber)?, at + end + 1)))
}

fn take_line(input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    let most = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = most.iter().position(|byte| *byte == b'\n') else {
        let is_full = most.len() == LINE_BYTES_MAX;
        return if is_full { Err(ProtocolError::LongLine) } else { Ok(None) };
    };
    let line = input.split_to(end).freeze();
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return Err(ProtocolError::Quotes);
    }
    input.advance(1);
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let arguments: Vec<_> = words.map(|word| line.slice_ref(word)).collect();
    if arguments.len() > ARGUMENTS_MAX {
        return Err(ProtocolError::TooManyArguments);
    }
    Ok(Some(Request { arguments, is_line: true }))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn words(request: &Request) -> Vec<&[u8]> {
        request.arguments.iter().map(Bytes::as_ref).collect()
    }

    fn taken(text: &str) -> Result<Option<Request>, ProtocolError> {
        take(&mut BytesMut::from(text))
    }

    fn written(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    #[test]
    fn requests_in_a_row_are_taken_one_by_one() {
        let mut input = BytesMut::from("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1");
        assert_eq!(words(&take(&mut input).unwrap().unwrap()), [b"PING".as_slice()]);
        assert_eq!(words(&take(&mut input).unwrap().unwrap()), [b"ECHO".as_slice(), b""]);
        assert_eq!(take(&mut input), Ok(None));
        assert_eq!(&input[..], b"*1");
    }

    #[test]
    fn a_line_of_words_is_a_request() {
        let request = taken("  SET a  b\r\n").unwrap().unwrap();
        assert!(request.is_line);
        assert_eq!(words(&request), [b"SET".as_slice(), b"a", b"b"]);
        assert!(taken("\r\n").unwrap().unwrap().arguments.is_empty());
    }

    #[test]
    fn an_empty_array_is_a_request_without_a_command() {
        for empty in ["*0\r\n", "*-1\r\n"] {
            assert!(taken(empty).unwrap().unwrap().arguments.is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_before_more_is_read() {
        for (wrong, error) in [
            ("*65\r\n", ProtocolError::TooManyArguments),
            ("*99999999999999999", ProtocolError::BadNumber),
            ("*a\r\n", ProtocolError::BadNumber),
            ("*+1\r\n", ProtocolError::BadNumber),
            ("*\r\n", ProtocolError::BadNumber),
            ("*1\n", ProtocolError::BadNumber),
            ("*1\r\nPING", ProtocolError::NoBulkString),
            ("*1\r\n*1\r\n", ProtocolError::NoBulkString),
            ("*1\r\n$-1\r\n", ProtocolError::BadNumber),
            ("*1\r\n$70000\r\n", ProtocolError::TooLong),
            ("*2\r\n$4\r\nECHO\r\n$65520\r\n", ProtocolError::TooLong),
            ("*1\r\n$4\r\nPINGxx", ProtocolError::NoEnd),
            (&"x".repeat(1024), ProtocolError::LongLine),
            ("SET \"k\" v NX PX 1\r\n", ProtocolError::Quotes),
            ("\x16\x03\x01\x02", ProtocolError::Tls),
            (&format!("{}\n", "x ".repeat(65)), ProtocolError::TooManyArguments),
        ] {
            assert_eq!(taken(wrong), Err(error), "{wrong:?}");
        }
    }

    #[test]
    fn debug_shows_no_argument() {
        let request = taken("AUTH secret\r\n").unwrap().unwrap();
        assert!(!format!("{request:?}").contains("secret"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_written_is_read_however_it_is_cut(
            arguments in vec(vec(any::<u8>(), 0..40), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = written(&arguments);
            let cut = cut.index(bytes.len());
            let mut input = BytesMut::from(&bytes[..cut]);
            prop_assert_eq!(take(&mut input), Ok(None));
            input.extend_from_slice(&bytes[cut..]);
            let request = take(&mut input).unwrap().unwrap();
            prop_assert_eq!(request.arguments, arguments);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn input_of_the_full_length_has_a_request_or_an_error(
            arguments in vec(vec(any::<u8>(), 0..2000), 0..64),
            fill in any::<u8>(),
        ) {
            let mut input = BytesMut::from(&written(&arguments)[..]);
            input.resize(INPUT_BYTES_MAX.max(input.len()), fill);
            prop_assert_ne!(take(&mut input), Ok(None));
        }
    }
}
