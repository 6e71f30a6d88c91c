//! The options of `leasehold lock`.

use std::{ffi::OsString, path::Path, str::FromStr, time::Duration};

use rustix::process::Signal;

use leasehold_util::{duration::parse_go_duration, exit};

use crate::{machine::Rules, protocol::cut, say::Verbosity};

/// Longest label of a holder, in bytes.
const LABEL_BYTES_MAX: usize = 128;

/// The options that concern the lock and the command.
#[derive(Clone, Debug, clap::Args)]
pub struct LockOptions {
    /// Try once, and do not wait
    #[arg(short, long, conflicts_with = "wait")]
    pub nonblock: bool,

    /// Wait at most this long; a bare number is seconds, and without it the wait has no end
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,

    /// Take a shared lock: others may have one, too
    #[arg(short, long)]
    pub shared: bool,

    /// The exit status if the lock was not acquired; 0 skips the command without a word
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_ACQUIRED)]
    pub conflict_exit_code: u8,

    /// The lock's time to live, by default the store's; it is renewed
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub ttl: Option<Duration>,

    /// End the command after it has run for so long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_hold: Option<Duration>,

    /// What others are shown, by default the command's name and the process ID
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Ask the command to end this long before the lock may end, at most a third of the TTL
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub term_before: Duration,

    /// Release the lock when the command itself has ended, and leave its descendants alone
    #[arg(short = 'o', long)]
    pub leave_daemons: bool,

    /// The signal that asks the command to end
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    pub signal: EndSignal,

    /// Leave the command in this process group; implied in a terminal's foreground
    #[arg(long)]
    pub foreground: bool,

    /// Say what happens
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Say nothing
    #[arg(short, long)]
    pub quiet: bool,

    /// What to lock
    #[arg(value_name = "RESOURCE")]
    pub resource: String,

    /// What to run
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub command: Vec<OsString>,
}

impl LockOptions {
    /// Whether the lock is tried once: a wait of no time is none, as in flock.
    #[must_use]
    pub fn tries_once(&self) -> bool {
        self.nonblock || self.wait.is_some_and(|wait| wait.is_zero())
    }

    pub(crate) fn rules(&self) -> Rules {
        let Self { term_before, max_hold, leave_daemons, .. } = *self;
        Rules { term_before, max_hold, leave_daemons }
    }

    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        }
    }

    /// What others are shown of this holder: by default the command's base name and the
    /// supervisor's process ID.
    #[must_use]
    pub fn label_or(&self, supervisor: u32) -> String {
        if let Some(label) = &self.label {
            return label.clone();
        }
        let program = self.command.first().map(Path::new).and_then(Path::file_name);
        let name = program.unwrap_or_default().to_string_lossy();
        let name: String = name.chars().filter(|c| !c.is_control() && *c != '/').collect();
        let pid = supervisor.to_string();
        let room = LABEL_BYTES_MAX - pid.len() - 1;
        format!("{}-{pid}", cut(&name, room))
    }
}

/// The signal that asks a command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndSignal(pub(crate) Signal);

/// Those that programs use for this.
const END_SIGNALS: [(&str, Signal); 7] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("KILL", Signal::KILL),
];

/// Reads a name with or without SIG, or a number.
impl FromStr for EndSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let number = text.parse::<i32>().ok();
        let known = END_SIGNALS
            .iter()
            .find(|(known, signal)| *known == name || number == Some(signal.as_raw()));
        known.map(|(_, signal)| Self(*signal)).ok_or_else(|| {
            let names = END_SIGNALS.map(|(name, _)| name).join(", ");
            format!("is none of {names}")
        })
    }
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if ttl.is_zero() { Err("must be positive".to_owned()) } else { Ok(ttl) }
}

/// Reads `1m30s`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let read = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => parse_go_duration(text),
    };
    read.ok_or_else(|| "is not a duration such as 30s, 1m30s, 500ms or 10".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: LockOptions,
    }

    fn read(line: &str) -> LockOptions {
        Line::try_parse_from(line.split(' ')).unwrap().options
    }

    #[test]
    fn durations_are_seconds_or_have_a_unit() {
        for (text, seconds) in [("10", 10.0), ("0.5", 0.5), ("1m30s", 90.0), ("250ms", 0.25)] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "x", "-1", "1e400", "nan", "-3s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wait_of_no_time_is_one_try_and_a_ttl_of_none_is_refused() {
        assert!(read("lock -w 0 r -- ls").tries_once());
        assert!(!read("lock -w 0.1 r -- ls").tries_once());
        assert!(Line::try_parse_from(["lock", "--ttl", "0", "r", "--", "ls"]).is_err());
    }

    #[test]
    fn what_follows_two_dashes_is_the_commands() {
        let options = read("lock -n -E 0 r -- rm -rf --wait sidecar");
        assert!(options.nonblock && options.conflict_exit_code == 0 && options.wait.is_none());
        assert_eq!(options.command, ["rm", "-rf", "--wait", "sidecar"]);
        assert!(Line::try_parse_from(["lock", "r"]).is_err());
        assert!(Line::try_parse_from(["lock", "r", "ls"]).is_err());
    }

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["INT", "SIGINT", "sigint", "int", "2"] {
            assert_eq!(text.parse(), Ok(EndSignal(Signal::INT)), "{text}");
        }
        assert!("STOP".parse::<EndSignal>().is_err());
    }

    #[test]
    fn the_label_is_the_commands_base_name_and_the_process_id() {
        assert_eq!(read("lock r -- /usr/bin/backup x").label_or(42), "backup-42");
        assert_eq!(read("lock --label nightly r -- ls").label_or(42), "nightly");
        let long = format!("lock r -- {}", "ü".repeat(100));
        assert_eq!(read(&long).label_or(12_345).len(), 128);
    }
}
