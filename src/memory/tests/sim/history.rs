//! What happened, in the order in which it did.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use leasehold_lock::LockError;
use tokio::time::Instant;

/// Names a call of a client; it travels to the server as the holder's label.
pub type OpId = u32;

/// What a client asks for. Resources are numbers, grants are named by tokens.
/// `own` is the number of a lock ID that its client brings, again and again; 0
/// where the store makes one.
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
    /// By somebody who has given it up, or believes it to be over.
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

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
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
    /// Somebody who does not speak the protocol.
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
    Told {
        op: OpId,
        told: Told,
    },
    /// The caller went away.
    Left {
        op: OpId,
    },
    /// The grant was received: its holder believes in it until then.
    Believed {
        token: u64,
        resource: u8,
        until_us: u64,
    },
    /// The answer reached nobody.
    NotReceived {
        op: OpId,
        token: u64,
    },
    /// The server granted, or gave a replay its grant again.
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
    /// Everything stands still for so long.
    Stalls {
        us: u64,
    },
    /// A process was told to end, or was killed.
    Drained {
        process: u8,
    },
    Killed {
        process: u8,
    },
    /// What a call met on its way.
    Fault {
        process: u8,
        fault: &'static str,
    },
    /// The server did what a lock store must not.
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

/// As text, one event a line.
pub fn log(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut log, event| {
        let _ = writeln!(log, "{:>10} us  {:?}", event.at_us, event.what);
        log
    })
}
