//! One connection with the protocol of Redis. Unlike a library's, it distinguishes a
//! reset from a close, and does not retry by itself.

use std::io;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Longer replies are not expected.
const REPLY_BYTES_MAX: usize = 64 * 1024;

/// A reply, as far as lock clients need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Integer(i64),
    Null,
    Error(String),
    /// Several replies, which are not looked at.
    Many,
}

/// A connection with at most one command in flight.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects, and asks for RESP3 if `is_resp3`.
    pub(super) async fn open(address: &str, is_resp3: bool) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, input: Vec::new() };
        if is_resp3 && connection.ask(&["HELLO", "3"]).await? != Reply::Many {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(connection)
    }

    /// Sends a command, and receives its reply.
    pub(super) async fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        self.send(words).await?;
        loop {
            if let Some((reply, length)) = parse(&self.input)? {
                self.input.drain(..length);
                return Ok(reply);
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends a command only.
    pub(super) async fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.write_all(request.as_bytes()).await
    }

    /// Ends it by a reset.
    pub(super) fn reset(self) {
        // On failure it is closed anyway.
        let _ = self.stream.set_zero_linger();
    }
}

/// The first reply and its length, if all of it is there.
fn parse(input: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let Some(line_end) = input.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&input[..line_end]).into_owned();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
    let after = line_end + 2;
    let number =
        || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    let reply = match kind {
        "+" => Reply::Text(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "_" => Reply::Null,
        "$" => {
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Null, after)));
            };
            let Some(text) = input.get(after..after + length) else { return Ok(None) };
            if input.len() < after + length + 2 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(text).into_owned();
            return Ok(Some((Reply::Text(text), after + length + 2)));
        }
        "*" | "%" | "~" => {
            let Ok(count) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Null, after)));
            };
            let count = if kind == "%" { 2 * count } else { count };
            let mut end = after;
            for _ in 0..count {
                let Some((_, length)) = parse(&input[end..])? else { return Ok(None) };
                end += length;
            }
            return Ok(Some((Reply::Many, end)));
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok(Some((reply, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_once_all_of_it_is_there() {
        let replies = [
            ("+OK\r\n", Reply::Text("OK".into())),
            ("-ERR no\r\n", Reply::Error("ERR no".into())),
            (":-2\r\n", Reply::Integer(-2)),
            ("$-1\r\n", Reply::Null),
            ("_\r\n", Reply::Null),
            ("$4\r\na\r\nb\r\n", Reply::Text("a\r\nb".into())),
            ("%1\r\n+proto\r\n*2\r\n:3\r\n$1\r\nx\r\n", Reply::Many),
        ];
        for (text, reply) in replies {
            for cut in 0..text.len() {
                assert_eq!(parse(&text.as_bytes()[..cut]).unwrap(), None, "{text:?} to {cut}");
            }
            let followed = format!("{text}:1\r\n");
            assert_eq!(parse(followed.as_bytes()).unwrap(), Some((reply, text.len())));
        }
    }
}
