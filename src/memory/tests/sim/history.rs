//! The history of a run: events in their order.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use leasehold_lock::LockError;
use tokio::time::Instant;

/// Identifies a call of a client; it is sent to the server as the holder's label.
pub type OpId = u32;

/// A client's call. Resources are numbers, grants are named by tokens. `own` is
/// the number of a lock ID that the client chooses, repeatedly; 0 if the store
/// makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Try {
        resource: u8,
        ttl_ms: u64,
        replayable: bool,
        shared: bool,
        own: u8,
    },
    Lock {
        resource: u8,
        ttl_ms: u64,
        replayable: bool,
        shared: bool,
        own: u8,
        deadline_us: Option<u64>,
    },
    Renew {
        token: u64,
        ttl_ms: u64,
    },
    /// By a client that has released it, or believes it to be over.
    RenewStale {
        token: u64,
        own: u8,
    },
    Unlock {
        token: u64,
        own: u8,
    },
    Force {
        resource: u8,
    },
    /// A renewal and an unlock with a lock ID that was never granted.
    RenewForeign {
        resource: u8,
    },
    UnlockForeign {
        resource: u8,
    },
}

/// The answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted { token: u64, safe_us: u64 },
    Renewed { safe_us: u64 },
    Unlocked,
    Failed(LockError),
}

/// What ended a grant at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Owner,
    Force,
    /// The clean-up of an attempt.
    Undo,
    /// A deletion without the protocol.
    Operator,
    Ttl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Called {
        op: OpId,
        process: u8,
        call: Call,
    },
    Answered {
        op: OpId,
        answer: Answer,
    },
    /// The caller has left.
    Left {
        op: OpId,
    },
    /// The grant was received: its holder believes in it until then.
    Believed {
        token: u64,
        resource: u8,
        until_us: u64,
    },
    /// The answer was lost.
    NotReceived {
        op: OpId,
        token: u64,
    },
    /// The server made a grant, or returned one to a replay.
    Granted {
        op: OpId,
        token: u64,
        resource: u8,
        created: bool,
        expires_us: u64,
    },
    Waits {
        op: OpId,
        resource: u8,
    },
    LeftQueue {
        op: OpId,
    },
    Renewed {
        token: u64,
        expires_us: u64,
    },
    Ended {
        token: u64,
        by: End,
    },
    /// Everything stands still for some time.
    Stalls {
        us: u64,
    },
    /// A process was stopped or killed.
    Drained {
        process: u8,
    },
    Killed {
        process: u8,
    },
    /// The fault of a call.
    Fault {
        process: u8,
        fault: &'static str,
    },
    /// The server broke a rule of lock stores.
    Wrong(String),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at_us: u64,
    pub what: What,
}

/// Records events of one run.
#[derive(Clone)]
pub struct History {
    begun: Instant,
    events: Arc<Mutex<Vec<Event>>>,
}

impl History {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), events: Arc::default() }
    }

    pub fn us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_micros()).unwrap()
    }

    pub fn note(&self, what: What) {
        let at_us = self.us(Instant::now());
        self.events.lock().unwrap().push(Event { at_us, what });
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

/// The events as text, one on each line.
pub fn log(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut log, event| {
        let _ = writeln!(log, "{:>10} us  {:?}", event.at_us, event.what);
        log
    })
}
