//! Replies in RESP2 and RESP3.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};

/// The version of the protocol that a connection speaks. Requests are the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The default of each connection.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// The version that `HELLO` asks for; `None` if there is none.
    pub(super) fn of_number(number: &[u8]) -> Option<Self> {
        match number {
            b"2" => Some(Self::Resp2),
            b"3" => Some(Self::Resp3),
            _ => None,
        }
    }

    /// Its number in `HELLO`.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A short word, `OK` mostly.
    Simple(&'static str),
    /// An error, which begins with its kind: `ERR`, `NOAUTH`.
    Error(Cow<'static, str>),
    Integer(i64),
    Bulk(Bytes),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
}

impl Reply {
    pub(super) const OK: Self = Self::Simple("OK");

    /// A text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Bulk(Bytes::from(text.into()))
    }

    /// A failure of the general kind.
    pub(super) fn failure(message: impl std::fmt::Display) -> Self {
        Self::Error(format!("ERR {message}").into())
    }

    /// Its approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Error(text) => text.len(),
            Self::Bulk(bytes) => bytes.len(),
            Self::Array(items) => items.iter().map(Self::size).sum(),
            Self::Map(pairs) => pairs.iter().map(|(key, value)| key.len() + value.size()).sum(),
            Self::Simple(_) | Self::Integer(_) | Self::Null => 16,
        }
    }

    /// Writes the reply in a version of the protocol.
    pub(crate) fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Self::Simple(word) => line(out, b'+', word),
            // A line break would end the error, and the rest would be read as another
            // reply.
            Self::Error(error) => line(out, b'-', &error.replace(['\r', '\n'], " ")),
            Self::Integer(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => {
                line(out, b'$', &bytes.len().to_string());
                out.put_slice(bytes);
                out.put_slice(b"\r\n");
            }
            Self::Null => out.put_slice(match protocol {
                Protocol::Resp2 => b"$-1\r\n",
                Protocol::Resp3 => b"_\r\n",
            }),
            Self::Array(items) => {
                line(out, b'*', &items.len().to_string());
                items.iter().for_each(|item| item.write(protocol, out));
            }
            Self::Map(pairs) => {
                match protocol {
                    Protocol::Resp2 => line(out, b'*', &(2 * pairs.len()).to_string()),
                    Protocol::Resp3 => line(out, b'%', &pairs.len().to_string()),
                }
                for (key, value) in pairs {
                    Self::text(*key).write(protocol, out);
                    value.write(protocol, out);
                }
            }
        }
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &str) {
    out.put_u8(kind);
    out.put_slice(text.as_bytes());
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn a_missing_value_and_a_map_differ_between_the_protocols() {
        let map = Reply::Map(vec![("a", Reply::Integer(-1)), ("b", Reply::Null)]);
        let resp2 = "*4\r\n$1\r\na\r\n:-1\r\n$1\r\nb\r\n$-1\r\n";
        assert_eq!(written(&map, Protocol::Resp2), resp2);
        assert_eq!(written(&map, Protocol::Resp3), "%2\r\n$1\r\na\r\n:-1\r\n$1\r\nb\r\n_\r\n");
    }

    #[test]
    fn words_texts_and_arrays_are_the_same_in_both() {
        let array = Reply::Array(vec![Reply::OK, Reply::text("é"), Reply::Array(vec![])]);
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            assert_eq!(written(&array, protocol), "*3\r\n+OK\r\n$2\r\né\r\n*0\r\n");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = Reply::failure("no\r\n+OK");
        assert_eq!(written(&error, Protocol::Resp2), "-ERR no  +OK\r\n");
    }
}
