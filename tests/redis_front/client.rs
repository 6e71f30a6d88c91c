//! A client that speaks RESP.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// How long a reply may take. Longer than each limit of the front except that of idle
/// connections.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

pub const NULL: Value = Value::Null;

pub fn ok() -> Value {
    Value::Simple("OK".to_owned())
}

pub fn int(number: i64) -> Value {
    Value::Integer(number)
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.to_owned())
}

impl Value {
    /// The text of an error.
    pub fn error(self) -> String {
        match self {
            Self::Error(text) => text,
            other => panic!("{other:?} is no error"),
        }
    }

    pub fn number(self) -> i64 {
        match self {
            Self::Integer(number) => number,
            other => panic!("{other:?} is no number"),
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::Bulk(text) | Self::Simple(text) => text,
            other => panic!("{other:?} is no text"),
        }
    }
}

/// A request in the bytes of the protocol.
pub fn request(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// A connection to a front.
pub struct Client<S = TcpStream> {
    pub stream: S,
    input: Vec<u8>,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn over(stream: S) -> Self {
        Self { stream, input: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends a request and reads its reply.
    pub async fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Value {
        self.try_ask(words).await.unwrap()
    }

    pub async fn try_ask(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Value> {
        self.stream.write_all(&request(words)).await?;
        self.stream.flush().await?;
        self.try_reply().await.map(|(value, _)| value)
    }

    /// The next reply.
    pub async fn reply(&mut self) -> Value {
        self.try_reply().await.unwrap().0
    }

    /// The reply to a request, in the bytes of the protocol.
    pub async fn ask_raw(&mut self, words: &[impl AsRef<[u8]>]) -> String {
        self.send(&request(words)).await;
        let (_, bytes) = self.try_reply().await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    async fn try_reply(&mut self) -> io::Result<(Value, Vec<u8>)> {
        timeout(PATIENCE, async {
            loop {
                let mut rest = &self.input[..];
                if let Some(value) = parse(&mut rest) {
                    let length = self.input.len() - rest.len();
                    return Ok((value, self.input.drain(..length).collect()));
                }
                if self.stream.read_buf(&mut self.input).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        })
        .await
        .expect("no reply")
    }

    /// Reads until the front ends the connection, which it must. Returns what it sent.
    pub async fn ended(&mut self) -> String {
        let reading = async {
            while self.stream.read_buf(&mut self.input).await.is_ok_and(|count| count > 0) {}
        };
        timeout(PATIENCE, reading).await.expect("the connection was not ended");
        String::from_utf8(std::mem::take(&mut self.input)).unwrap()
    }

    /// Returns once a front in this process has processed everything that was sent before,
    /// over any connection, and the ends of connections: it has this thread for itself while
    /// nothing here can run.
    pub async fn settle(&mut self) {
        for _ in 0..5 {
            self.ask(&["PING"]).await;
        }
    }

    /// Takes a lock for a minute.
    pub async fn take(&mut self, key: &str, value: &str) -> Value {
        self.ask(&["SET", key, value, "NX", "PX", "60000"]).await
    }

    pub async fn eval(&mut self, script: &str, key: &str, arguments: &[&str]) -> Value {
        self.ask(&[&["EVAL", script, "1", key], arguments].concat()).await
    }

    pub async fn is_locked(&mut self, key: &str) -> bool {
        self.ask(&["EXISTS", key]).await == int(1)
    }
}

/// Takes the first reply out of `rest`; `None` if it is not complete.
fn parse(rest: &mut &[u8]) -> Option<Value> {
    let (kind, line) = line(rest)?;
    let number = || line.parse::<i64>().unwrap();
    Some(match kind {
        b'+' => Value::Simple(line),
        b'-' => Value::Error(line),
        b':' => Value::Integer(number()),
        b'_' => Value::Null,
        b'$' | b'*' if number() < 0 => Value::Null,
        b'$' => {
            let (text, after) = rest.split_at_checked(number().try_into().unwrap())?;
            *rest = after.strip_prefix(b"\r\n").or_else(|| {
                assert!(after.len() < 2, "a text does not end with CRLF");
                None
            })?;
            Value::Bulk(str::from_utf8(text).unwrap().to_owned())
        }
        b'*' => Value::Array((0..number()).map(|_| parse(rest)).collect::<Option<_>>()?),
        b'%' => {
            let pair = |_| Some((parse(rest)?, parse(rest)?));
            Value::Map((0..number()).map(pair).collect::<Option<_>>()?)
        }
        other => panic!("{:?} begins no reply", char::from(other)),
    })
}

fn line(rest: &mut &[u8]) -> Option<(u8, String)> {
    let end = rest.windows(2).position(|bytes| bytes == b"\r\n")?;
    let (kind, line) = rest[..end].split_first().expect("an empty line is no reply");
    let line = (*kind, str::from_utf8(line).unwrap().to_owned());
    *rest = &rest[end + 2..];
    Some(line)
}
