//! What can go wrong.

use std::{error, fmt, time::Duration};

use tonic::Status;

use crate::{Cause, reason};

/// Why a lock was not acquired, or ended too early.
///
/// The `Debug` form, which `main` shows, is the message.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else had the lock until the wait ended.
    NotAcquired(NotAcquired),
    /// The lock was held and is lost.
    LockLost(LockLost),
    /// Everything else: a bad option, a sidecar that is not there, a store that failed.
    Failed(Failure),
}

impl Error {
    /// The machine-readable reason, such as `RESOURCE_LOCKED`.
    ///
    /// It is the reason of the sidecar's `google.rpc.ErrorInfo`, or else the name of the gRPC code,
    /// such as `UNAVAILABLE`, which a broken connection has too. A bad option that this crate found
    /// has `INVALID_REQUEST`.
    pub fn reason(&self) -> &str {
        match self {
            Self::NotAcquired(error) => error.reason(),
            Self::LockLost(_) => reason::LOCK_LOST,
            Self::Failed(error) => error.reason(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => error.fmt(f),
            Self::LockLost(error) => error.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl error::Error for Error {}

macro_rules! debug_is_display {
    ($($error:ty),+) => {
        $(impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        })+
    };
}

debug_is_display!(Error, NotAcquired, LockLost, Failure);

impl From<LockLost> for Error {
    fn from(lost: LockLost) -> Self {
        Self::LockLost(lost)
    }
}

/// Somebody else had the lock until the wait ended.
#[derive(Clone, PartialEq, Eq)]
pub struct NotAcquired {
    pub(crate) resource: String,
    pub(crate) reason: &'static str,
    pub(crate) wait: Option<Duration>,
    pub(crate) holder: Option<String>,
}

impl NotAcquired {
    /// `RESOURCE_LOCKED` (there was no wait) or `WAIT_DEADLINE`.
    pub fn reason(&self) -> &str {
        self.reason
    }

    /// Who holds the lock, as `APP/INSTANCE` or `APP/INSTANCE/LABEL`, if the sidecar named it.
    /// For people.
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }
}

impl fmt::Display for NotAcquired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock {:?} ", self.resource)?;
        match (self.wait, &self.holder) {
            (Some(wait), holder) if self.reason == reason::WAIT_DEADLINE => {
                write!(f, "was not acquired within {} s", wait.as_secs_f64())?;
                holder.iter().try_for_each(|holder| write!(f, "; it is held by {holder}"))
            }
            (_, Some(holder)) => write!(f, "is held by {holder}"),
            (_, None) => f.write_str("is held by somebody else"),
        }
    }
}

impl error::Error for NotAcquired {}

/// The lock was held and is lost: do not act under it any more.
#[derive(Clone, PartialEq, Eq)]
pub struct LockLost {
    pub(crate) resource: String,
    pub(crate) cause: Cause,
}

impl LockLost {
    /// Why it was lost.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }
}

impl fmt::Display for LockLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} lost: {}", self.resource, self.cause)
    }
}

impl error::Error for LockLost {}

/// Neither a held lock nor a lost one: a bad option, no sidecar, a store that failed.
///
/// The message says what made the call fail in this process, such as a refused connection; the
/// source of its [`status`](Self::status) is that error.
#[derive(Clone)]
pub struct Failure {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) status: Option<Box<Status>>,
}

impl Failure {
    /// The machine-readable reason; see [`Error::reason`].
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What happened, for people. For a bad option it begins with the option's name.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The answer to the call that failed, if there was a call.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_deref()
    }

    pub(crate) fn unavailable(message: &str) -> Error {
        let (reason, message) = (reason::UNAVAILABLE.to_owned(), message.to_owned());
        Error::Failed(Self { reason, message, status: None })
    }

    /// `problem` is the text after the name of the option.
    pub(crate) fn option(option: &str, problem: &str) -> Error {
        let (reason, message) =
            (reason::INVALID_REQUEST.to_owned(), format!("{option} {problem}"));
        Error::Failed(Self { reason, message, status: None })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl error::Error for Failure {}

/// Why [`run`](crate::LockBuilder::run) has no result.
///
/// `E` is the error of the work. `RunError<E>` is an error for every `E` that can be displayed, so
/// that `?` works in a function that returns `anyhow::Result` or `Box<dyn Error>`, whether the
/// work's error is a type of its own or an `anyhow::Error`. It shows the error of the work as that
/// shows itself, and the loss in parentheses. It has no [source](error::Error::source): for the
/// sources of the work's error, ask [`work`](Self::work).
#[derive(Clone)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work failed.
    Work {
        /// The error that the work returned.
        error: E,
        /// The loss of the lock, if it was lost by then.
        lost: Option<LockLost>,
    },
    /// The lock was not acquired, or it was lost.
    Lock(Error),
}

impl<E> RunError<E> {
    /// The loss of the lock, whether or not the work failed too.
    pub fn lost(&self) -> Option<&LockLost> {
        match self {
            Self::Work { lost, .. } => lost.as_ref(),
            Self::Lock(Error::LockLost(lost)) => Some(lost),
            Self::Lock(_) => None,
        }
    }

    /// The error of the work, if it failed.
    pub fn work(&self) -> Option<&E> {
        if let Self::Work { error, .. } = self { Some(error) } else { None }
    }

    /// Converts into one error type: the work's error, or the lock's error after `other`.
    ///
    /// A loss beside the work's error is dropped. `into_work(Into::into)` is enough where `E` is
    /// `From<Error>`, such as `anyhow::Error` or an enum of the app.
    pub fn into_work(self, other: impl FnOnce(Error) -> E) -> E {
        match self {
            Self::Work { error, .. } => error,
            Self::Lock(error) => other(error),
        }
    }
}

impl<E> From<Error> for RunError<E> {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work { error, lost } => {
                error.fmt(f)?;
                lost.iter().try_for_each(|lost| write!(f, " ({lost})"))
            }
            Self::Lock(error) => error.fmt(f),
        }
    }
}

/// Like the `Display` form, with the `Debug` form of the work's error.
impl<E: fmt::Debug> fmt::Debug for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work { error, lost } => {
                error.fmt(f)?;
                lost.iter().try_for_each(|lost| write!(f, " ({lost})"))
            }
            Self::Lock(error) => error.fmt(f),
        }
    }
}

// Without a source: an `E` that is not an `Error` has none, and the lock's errors show theirs.
impl<E: fmt::Debug + fmt::Display> error::Error for RunError<E> {}
