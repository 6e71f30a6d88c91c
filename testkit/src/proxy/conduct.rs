//! How a proxy behaves.

use std::time::Duration;

/// What happens to one direction's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// Each piece is delayed by this time.
    Delay(Duration),
    /// They are held, and arrive after the fault, as in a partition while TCP
    /// retransmits.
    Stall,
    /// They are lost. The connection ends after the fault.
    Swallow,
    /// This many more bytes pass, then the connection is cut.
    CutAfter(u64),
}

impl Flow {
    /// How many bytes may still pass.
    pub(super) fn budget(self) -> u64 {
        if let Self::CutAfter(bytes) = self { bytes } else { u64::MAX }
    }
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// It reaches the server.
    #[default]
    Pass,
    /// It is closed at once.
    Refuse,
    /// It is accepted, and reaches the server after the fault.
    Stall,
    /// It is accepted and never answered; closed after the fault.
    HalfOpen,
}

/// How a proxy behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Towards the server.
    pub requests: Flow,
    /// From the server.
    pub replies: Flow,
    /// New connections.
    pub admission: Admission,
    /// Connections of these origins are held in both directions.
    pub shunned: Vec<String>,
}

impl Conduct {
    /// Both directions are held, and new connections are accepted.
    pub fn stalled() -> Self {
        Self { requests: Flow::Stall, replies: Flow::Stall, ..Self::default() }
    }

    /// Both directions and new connections are held.
    pub fn partition() -> Self {
        Self { admission: Admission::Stall, ..Self::stalled() }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It passes, and its connection is cut when the server replies.
    LoseReply,
    /// Its client is disconnected; the server receives it later.
    Hold,
}
