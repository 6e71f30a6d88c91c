//! The messages on the channel of a process.
//!
//! ```text
//! call:ATTEMPT:RESOURCE   the attempt's turn has come
//! skip::RESOURCE          places of the process in this queue were dropped
//! look::RESOURCE          the process must answer whether it is alive, by a look
//! ```

/// A channel to which no process subscribes, because no random UUID is all zeros.
pub(super) const NOBODYS_CHANNEL: &str = "\x01n00000000000000000000000000000000";

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Notice<'a> {
    /// A resource was handed over to an attempt, which must confirm it.
    Call { attempt: &'a str, resource: &'a str },
    /// The process was silent for too long, and lost places.
    Skip { resource: &'a str },
    /// Somebody doubts that the process is alive.
    Look { resource: &'a str },
}

impl<'a> Notice<'a> {
    /// The resource that it is about.
    pub(super) fn resource(&self) -> &'a str {
        match self {
            Self::Call { resource, .. } | Self::Skip { resource } | Self::Look { resource } => {
                resource
            }
        }
    }

    /// Reads a message. `None` if it is not one: anybody may publish to a channel.
    pub(super) fn read(message: &'a str) -> Option<Self> {
        let mut parts = message.splitn(3, ':');
        match (parts.next()?, parts.next()?, parts.next()?) {
            ("call", attempt, resource) => Some(Self::Call { attempt, resource }),
            ("skip", "", resource) => Some(Self::Skip { resource }),
            ("look", "", resource) => Some(Self::Look { resource }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_may_contain_colons() {
        let call = Notice::Call { attempt: "ab", resource: "a:b::" };
        assert_eq!(Notice::read("call:ab:a:b::"), Some(call));
        assert_eq!(Notice::read("skip:::r"), Some(Notice::Skip { resource: ":r" }));
        assert_eq!(Notice::read("look:::r"), Some(Notice::Look { resource: ":r" }));
    }

    #[test]
    fn other_messages_are_ignored() {
        for odd in ["", "call", "call:ab", "skip:ab:r", "1500:r", "Call:ab:r"] {
            assert_eq!(Notice::read(odd), None, "{odd}");
        }
    }
}
