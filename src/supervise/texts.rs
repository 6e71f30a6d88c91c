//! The lines that the supervisor writes about its decisions.

use crate::machine::{Note, Reason};

/// The text of a note. `left` names what is left of the command and its descendants.
pub(crate) fn of_note(note: Note, left: &str) -> String {
    match note {
        Note::WaitingForDescendants => {
            format!("the command has ended; waiting for what it left behind: {left}")
        }
        Note::Survivors => format!(
            "was killed and has not ended: {left}; the lock is not released, and ends with its TTL"
        ),
        Note::TooLate => {
            "the lock was granted too late to start the command; waiting for it again".into()
        }
        Note::LockProcessDied => {
            "the process that acquires and renews the lock has ended".into()
        }
        Note::WasForced => {
            "somebody else has ended the lock, or the store has lost it, before the command ended"
                .into()
        }
        Note::NotReleased => "the lock was not released; it ends with its TTL".into(),
    }
}

/// Why the command is ended.
pub(crate) fn of_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::NotRenewed => "the lock could not be renewed in time; ending the command",
        Reason::Forced => {
            "somebody else has ended the lock, or the store has lost it; ending the command"
        }
        Reason::MaxHold => {
            "the lock was held for as long as --max-hold allows; ending the command"
        }
    }
}
