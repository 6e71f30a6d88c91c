//! The messages of the two processes to each other, one a line.

use std::{fmt, io, str::FromStr, time::Duration};

use rustix::process::Pid;

/// Longest line, so that a write of one is atomic (PIPE_BUF) and fits where poll sees room.
pub(crate) const LINE_BYTES_MAX: usize = 4_000;

/// From the lock process to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The lock is held. Its deadline was noted before.
    Granted {
        /// The fencing token, if the store has them.
        token: Option<u64>,
        /// The TTL granted.
        ttl: Duration,
    },
    /// The lock was not acquired.
    Refused {
        /// The exit status.
        exit: u8,
        /// Why.
        why: String,
    },
    /// Another caller has ended the lock.
    Forced,
    /// The lock was released, or that is not confirmed.
    Released {
        /// Whether the store has confirmed it.
        confirmed: bool,
    },
    /// To be shown to the user.
    Say(String),
    /// To be shown to a user who has asked for more.
    Detail(String),
}

/// From the supervisor to the lock process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The command is about to be started.
    Starts {
        /// The command.
        command: Pid,
        /// Whether it leads a process group of its own.
        leads_group: bool,
        /// Children that the supervisor had before.
        others: Vec<Pid>,
    },
    /// Nothing of the command is left: release the lock, and end.
    Release,
    /// Nothing of the command is left: release the lock, and wait for it again.
    ReleaseAndWait,
}

/// A line that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message of this protocol")]
pub struct NoMessage;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { token, ttl } => {
                write!(f, "granted {} {}", token.unwrap_or(0), ttl.as_millis())
            }
            Self::Refused { exit, why } => write!(f, "refused {exit} {}", Line(why)),
            Self::Forced => f.write_str("forced"),
            Self::Released { confirmed } => write!(f, "released {confirmed}"),
            Self::Say(text) => write!(f, "say {}", Line(text)),
            Self::Detail(text) => write!(f, "detail {}", Line(text)),
        }
    }
}

/// Any other line is something that a library has written to stderr: it is said.
impl From<&str> for Report {
    fn from(line: &str) -> Self {
        read_report(line).unwrap_or_else(|| Self::Say(line.to_owned()))
    }
}

fn read_report(line: &str) -> Option<Report> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Some(match word {
        "granted" => {
            let (token, ttl) = rest.split_once(' ')?;
            let token = token.parse().ok()?;
            let ttl = Duration::from_millis(ttl.parse().ok()?);
            Report::Granted { token: Some(token).filter(|token| *token > 0), ttl }
        }
        "refused" => {
            let (exit, why) = rest.split_once(' ')?;
            Report::Refused { exit: exit.parse().ok()?, why: why.to_owned() }
        }
        "forced" => Report::Forced,
        "released" => Report::Released { confirmed: rest.parse().ok()? },
        "say" => Report::Say(rest.to_owned()),
        "detail" => Report::Detail(rest.to_owned()),
        _ => return None,
    })
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts { command, leads_group, others } => {
                write!(f, "starts {command} {leads_group}")?;
                others.iter().try_for_each(|other| write!(f, " {other}"))
            }
            Self::Release => f.write_str("release"),
            Self::ReleaseAndWait => f.write_str("again"),
        }
    }
}

impl FromStr for Word {
    type Err = NoMessage;

    fn from_str(line: &str) -> Result<Self, NoMessage> {
        let mut words = line.split(' ');
        match words.next() {
            Some("release") => Ok(Self::Release),
            Some("again") => Ok(Self::ReleaseAndWait),
            Some("starts") => {
                let command = words.next().and_then(pid).ok_or(NoMessage)?;
                let leads_group = words.next().and_then(|text| text.parse().ok());
                let leads_group = leads_group.ok_or(NoMessage)?;
                Ok(Self::Starts {
                    command,
                    leads_group,
                    others: words.filter_map(pid).collect(),
                })
            }
            _ => Err(NoMessage),
        }
    }
}

/// Reads a process ID.
pub(crate) fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// A text without line breaks, cut to the length of a line.
struct Line<'a>(&'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cut(self.0, LINE_BYTES_MAX).trim_end().replace(['\n', '\r'], " "))
    }
}

/// The beginning of a text, of at most so many bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    &text[..ends.take_while(|end| *end <= bytes_max).last().unwrap_or(0)]
}

/// Cuts what is read from a pipe into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    begun: Vec<u8>,
}

/// Whether a pipe has another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    Open,
    Closed,
}

impl Lines {
    /// Reads what is there, from a source that does not block or that poll has found readable.
    pub(crate) fn read(
        &mut self,
        source: &mut impl io::Read,
        lines: &mut Vec<String>,
    ) -> io::Result<Pipe> {
        let mut bytes = [0; 4096];
        let pipe = match source.read(&mut bytes) {
            Ok(0) => Pipe::Closed,
            Ok(count) => {
                self.begun.extend_from_slice(&bytes[..count]);
                Pipe::Open
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Pipe::Open),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Pipe::Open),
            Err(error) => return Err(error),
        };
        while let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        if self.begun.len() > 2 * LINE_BYTES_MAX {
            self.begun.clear();
        }
        Ok(pipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [
            Report::Granted { token: Some(7), ttl: Duration::from_secs(30) },
            Report::Granted { token: None, ttl: Duration::from_millis(100) },
            Report::Refused { exit: 75, why: "the resource is locked by a".to_owned() },
            Report::Forced,
            Report::Released { confirmed: true },
            Report::Released { confirmed: false },
            Report::Say("a b".to_owned()),
            Report::Detail("c".to_owned()),
        ] {
            assert_eq!(Report::from(report.to_string().as_str()), report);
        }
    }

    #[test]
    fn a_word_is_read_as_it_was_written() {
        let pid = |raw| Pid::from_raw(raw).unwrap();
        for word in [
            Word::Starts { command: pid(42), leads_group: true, others: vec![] },
            Word::Starts { command: pid(42), leads_group: false, others: vec![pid(7), pid(8)] },
            Word::Release,
            Word::ReleaseAndWait,
        ] {
            assert_eq!(word.to_string().parse(), Ok(word));
        }
        for bad in ["", "starts", "starts x true", "starts 4", "Release"] {
            assert_eq!(bad.parse::<Word>(), Err(NoMessage), "{bad}");
        }
    }

    #[test]
    fn a_line_that_is_no_report_is_said() {
        let panic = "thread 'main' panicked at src/main.rs";
        assert_eq!(Report::from(panic), Report::Say(panic.to_owned()));
    }

    #[test]
    fn a_text_never_breaks_a_line_and_is_cut() {
        let text = Report::Say(format!("a\nb{}", "ü".repeat(5_000))).to_string();
        assert!(text.starts_with("say a b") && !text.contains('\n'));
        assert!(text.len() <= LINE_BYTES_MAX + 4);
    }

    #[test]
    fn lines_are_put_together_from_parts() {
        let (mut lines, mut read) = (Lines::default(), Vec::new());
        for part in ["a", "b\nc\nd", ""] {
            let expected = if part.is_empty() { Pipe::Closed } else { Pipe::Open };
            assert_eq!(lines.read(&mut part.as_bytes(), &mut read).unwrap(), expected);
        }
        assert_eq!(read, ["ab", "c"]);
    }
}
