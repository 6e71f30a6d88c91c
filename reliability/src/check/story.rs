//! Histories for tests, with times in milliseconds.

use crate::{
    check::{Rule, Verdict, check},
    faults::{Injected, Voids},
    history::{Acquisition, Call, Granted, Invocation, LAST_WAITS, Mode, Operation, Outcome},
    world::Backend,
};

/// A history of one resource, `r`.
pub(super) struct Story {
    pub(super) backend: Backend,
    pub(super) operations: Vec<Operation>,
    pub(super) faults: Vec<Injected>,
}

/// The TTL of all grants; 930 ms of it are safe.
pub(super) const TTL_MS: u64 = 1_000;

pub(super) fn on(backend: Backend) -> Story {
    Story { backend, operations: Vec::new(), faults: Vec::new() }
}

pub(super) fn story() -> Story {
    on(Backend::Memory)
}

pub(super) fn granted(lock_id: &str, token: i64) -> Outcome {
    let (lock_id, ttl_ns) = (lock_id.to_owned(), ns(TTL_MS));
    Outcome::Granted(Granted { lock_id, token, ttl_ns, ..Granted::default() })
}

/// Like [`granted`], after a wait.
pub(super) fn granted_after(waited_ms: u64, lock_id: &str, token: i64) -> Outcome {
    let (lock_id, ttl_ns, waited_ns) = (lock_id.to_owned(), ns(TTL_MS), ns(waited_ms));
    Outcome::Granted(Granted { lock_id, token, ttl_ns, waited_ns, ..Granted::default() })
}

pub(super) fn not_held() -> Outcome {
    Outcome::NotHeld { held: None }
}

pub(super) fn renewed() -> Outcome {
    Outcome::Renewed { ttl_ns: ns(TTL_MS) }
}

pub(super) fn unknown() -> Outcome {
    Outcome::Unknown("no answer".into())
}

pub(super) fn tries() -> Call {
    Call::Try(Acquisition { ttl_ms: TTL_MS, ..Acquisition::default() })
}

pub(super) fn tries_with(lock_id: &str) -> Call {
    let lock_id = Some(lock_id.into());
    Call::Try(Acquisition { ttl_ms: TTL_MS, lock_id, ..Acquisition::default() })
}

pub(super) fn repeats(request_id: &str) -> Call {
    let request_id = Some(request_id.into());
    Call::Try(Acquisition { ttl_ms: TTL_MS, request_id, ..Acquisition::default() })
}

pub(super) fn waits(wait_ms: u64) -> Call {
    let acquisition = Acquisition { ttl_ms: TTL_MS, ..Acquisition::default() };
    Call::Lock { acquisition, wait_ms }
}

/// The call, for a shared grant.
pub(super) fn shared(mut call: Call) -> Call {
    if let Call::Try(acquisition) | Call::Lock { acquisition, .. } = &mut call {
        acquisition.mode = Mode::Shared;
    }
    call
}

/// The outcome, with this public ID.
pub(super) fn known_as(grant_id: &str, mut outcome: Outcome) -> Outcome {
    if let Outcome::Granted(granted) = &mut outcome {
        granted.grant_id = grant_id.into();
    }
    outcome
}

pub(super) fn ended(grant_ids: &[&str]) -> Outcome {
    let grant_ids = grant_ids.iter().map(|id| (*id).to_owned()).collect();
    Outcome::Ended { grant_ids, more: false }
}

pub(super) fn renews(lock_id: &str) -> Call {
    Call::Renew { lock_id: lock_id.into(), ttl_ms: TTL_MS }
}

pub(super) fn unlocks(lock_id: &str) -> Call {
    Call::Unlock { lock_id: lock_id.into() }
}

impl Story {
    /// A call from one moment to another.
    pub(super) fn call(self, from_ms: u64, to_ms: u64, call: Call, outcome: Outcome) -> Self {
        self.push(from_ms, call, Some((ns(to_ms), outcome)))
    }

    /// A call whose process died.
    pub(super) fn died(self, from_ms: u64, call: Call) -> Self {
        self.push(from_ms, call, None)
    }

    fn push(mut self, at_ms: u64, call: Call, completion: Option<(u64, Outcome)>) -> Self {
        let invocation = Invocation {
            id: self.operations.len() as u64,
            at_ns: ns(at_ms),
            process: 1,
            client: 1,
            via: None,
            resource: "r".into(),
            call,
        };
        self.operations.push(Operation { invocation, completion });
        self
    }

    /// A call of the process that waits for each resource at the end of a run.
    pub(super) fn last(
        mut self,
        from_ms: u64,
        to_ms: u64,
        call: Call,
        outcome: Outcome,
    ) -> Self {
        self = self.call(from_ms, to_ms, call, outcome);
        if let Some(last) = self.operations.last_mut() {
            last.invocation.process = LAST_WAITS;
        }
        self
    }

    pub(super) fn fault(self, from_ms: u64, to_ms: u64, voids: Voids) -> Self {
        self.fault_called("some-fault", from_ms, to_ms, voids)
    }

    /// A fault with a name of the catalogue. If it concerns a resource, that is `r`.
    pub(super) fn fault_called(
        mut self,
        name: &str,
        from_ms: u64,
        to_ms: u64,
        voids: Voids,
    ) -> Self {
        let (from_ns, until_ns) = (ns(from_ms), ns(to_ms));
        let (name, detail) = (name.into(), "r, taken back".into());
        self.faults.push(Injected {
            name,
            detail,
            from_ns,
            over_ns: until_ns,
            until_ns,
            voids,
            slots: None,
        });
        self
    }

    /// The rules that it violates.
    pub(super) fn rules(&self) -> Vec<Rule> {
        let mut rules: Vec<_> =
            self.verdict().violations.iter().map(|found| found.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    pub(super) fn verdict(&self) -> Verdict {
        let mut operations = self.operations.clone();
        operations.sort_by_key(Operation::invoked_ns);
        check(self.backend, &operations, &self.faults)
    }
}

fn ns(ms: u64) -> u64 {
    ms * 1_000_000
}
