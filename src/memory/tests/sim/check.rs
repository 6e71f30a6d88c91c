//! Checks that a history is one of a correct lock store.
//!
//! The server's steps were already compared with the model. This checks what
//! the domain's callers saw.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use leasehold_lock::LockError;

use super::history::{Answer, Call, End as EndBy, Event, OpId, What};

/// No call takes longer than `operationTimeout` and the grace on it.
const ANSWER_US_MAX: u64 = 5_250_000;

/// What was left at the end of a run.
#[derive(Debug)]
pub struct End {
    /// Whether all processes had settled what they had begun.
    pub retired: bool,
    /// Live grants, by token.
    pub live: Vec<u64>,
    pub waiting: usize,
    /// Tasks beyond those of the store itself.
    pub tasks: usize,
}

#[derive(Default)]
struct Op {
    process: u8,
    called_us: u64,
    stalled_us: u64,
    call: Option<Call>,
    ended_us: Option<u64>,
    killed: bool,
}

struct Grant {
    op: OpId,
    own: u8,
    shared: bool,
    resource: u8,
    granted_us: u64,
    expires_us: u64,
    ended: Option<EndBy>,
    /// Whether it was received.
    received: bool,
    /// Whether a replay found it: from then on no clean-up may end it, even if
    /// the replay's answer was lost.
    claimed: bool,
    /// Until when its holders believe in it.
    believed_until_us: u64,
    /// Whether an unlock was requested.
    unlocking: bool,
}

/// All violations in a history.
pub fn violations(events: &[Event], end: &End) -> Vec<String> {
    let mut checker = Checker::default();
    for event in events {
        checker.see(event);
    }
    checker.at_the_end(end);
    checker.violations
}

#[derive(Default)]
struct Checker {
    ops: HashMap<OpId, Op>,
    grants: BTreeMap<u64, Grant>,
    /// Operations with a new grant, or with a waiter in a queue.
    granted: HashMap<OpId, u64>,
    queued: BTreeSet<OpId>,
    sent: BTreeSet<OpId>,
    any_killed: bool,
    /// How long everything stood still.
    stalled_us: u64,
    violations: Vec<String>,
}

impl Checker {
    fn see(&mut self, event: &Event) {
        let now = event.at_us;
        match &event.what {
            What::Called { op, process, call } => {
                let called = Op {
                    process: *process,
                    called_us: now,
                    stalled_us: self.stalled_us,
                    call: Some(*call),
                    ..Op::default()
                };
                self.ops.insert(*op, called);
                if let Call::Unlock { token, own } = call {
                    for (of, grant) in &mut self.grants {
                        if of == token || (grant.own == *own && *own > 0) {
                            grant.unlocking = true;
                            grant.believed_until_us = grant.believed_until_us.min(now);
                        }
                    }
                }
            }
            What::Answered { op, answer } => self.answered(now, *op, answer),
            What::Left { op } => {
                self.ops.entry(*op).or_default().ended_us = Some(now);
            }
            What::Believed { token, resource, until_us } => {
                self.believed(now, *token, *resource, *until_us);
            }
            What::Stalls { us } => self.stalled_us += us,
            What::NotReceived { .. } | What::Drained { .. } | What::Fault { .. } => {}
            What::Granted { op, token, resource, created, expires_us } => {
                self.sent.insert(*op);
                self.queued.remove(op);
                if *created {
                    self.granted.insert(*op, *token);
                    let call = self.ops.get(op).and_then(|op| op.call);
                    let (own, shared) = match call {
                        Some(
                            Call::Try { own, shared, .. } | Call::Lock { own, shared, .. },
                        ) => (own, shared),
                        _ => (0, false),
                    };
                    let grant = Grant {
                        op: *op,
                        own,
                        shared,
                        resource: *resource,
                        granted_us: now,
                        expires_us: *expires_us,
                        ended: None,
                        received: false,
                        claimed: false,
                        believed_until_us: 0,
                        unlocking: false,
                    };
                    self.grants.insert(*token, grant);
                } else if let Some(grant) = self.grants.get_mut(token) {
                    grant.expires_us = *expires_us;
                    grant.claimed = true;
                }
            }
            What::Waits { op, .. } => {
                self.sent.insert(*op);
                self.queued.insert(*op);
            }
            What::LeftQueue { op } => {
                self.queued.remove(op);
            }
            What::Renewed { token, expires_us } => {
                if let Some(grant) = self.grants.get_mut(token) {
                    grant.expires_us = *expires_us;
                }
            }
            What::Ended { token, by } => self.ended(now, *token, *by),
            What::Killed { process } => {
                self.any_killed = true;
                let of_it = |op: &&mut Op| op.process == *process && op.ended_us.is_none();
                for op in self.ops.values_mut().filter(of_it) {
                    op.killed = true;
                }
            }
            What::Wrong(what) => self.violations.push(what.clone()),
        }
    }

    fn answered(&mut self, now: u64, op_id: OpId, answer: &Answer) {
        let op = self.ops.entry(op_id).or_default();
        op.ended_us = Some(now);
        let (called_us, call) = (op.called_us, op.call);
        let stalled_us = self.stalled_us - op.stalled_us;
        let limit_us = match call {
            Some(Call::Lock { deadline_us, .. }) => {
                deadline_us.map(|deadline| deadline.max(called_us) + ANSWER_US_MAX - 5_000_000)
            }
            _ => Some(called_us + ANSWER_US_MAX),
        };
        if limit_us.is_some_and(|limit| now > limit + stalled_us) {
            self.wrong(op_id, &format!("was answered at {now} us, {answer:?}"));
        }
        match (answer, call) {
            (Answer::Granted { token, safe_us }, _) => {
                let expires = self.grants.get(token).map(|grant| grant.expires_us);
                if expires.is_none_or(|expires| *safe_us > expires) {
                    self.wrong(op_id, &format!("may believe until {safe_us}, not {expires:?}"));
                }
            }
            (Answer::Renewed { safe_us }, Some(Call::Renew { token, .. })) => {
                let expires = self.grants.get(&token).map(|grant| grant.expires_us);
                if expires.is_none_or(|expires| *safe_us > expires) {
                    self.wrong(op_id, &format!("renewed until {safe_us}, not {expires:?}"));
                }
            }
            (Answer::Unlocked, Some(Call::Unlock { token, own })) => {
                if self.is_live(token) && own == 0 {
                    self.wrong(op_id, "unlocked what is still held");
                }
            }
            (Answer::Unlocked, Some(Call::Force { .. })) => {}
            (Answer::Renewed { .. }, Some(Call::RenewStale { token, own })) => {
                let expires = self.grants.get(&token).map(|grant| grant.expires_us);
                if own == 0 && expires.is_none_or(|expires| expires < called_us) {
                    self.wrong(op_id, "renewed what had run out");
                }
            }
            (Answer::Failed(error), Some(call)) => {
                self.failed(now, op_id, called_us, call, error);
            }
            other => self.wrong(op_id, &format!("makes no sense: {other:?}")),
        }
    }

    fn failed(&mut self, _: u64, op: OpId, called_us: u64, call: Call, error: &LockError) {
        match (call, error) {
            (
                Call::Try { .. } | Call::Lock { .. },
                LockError::StoreUnavailable(_) | LockError::Locked { .. },
            ) if self.sent.contains(&op) => {
                self.wrong(op, &format!("took place, and was answered {error:?}"));
            }
            // A grant that others may share stays theirs.
            (Call::Lock { replayable: true, .. }, _) => {}
            (Call::Lock { .. }, LockError::WaitDeadline | LockError::ShuttingDown) => {
                let held = self.granted.get(&op).is_some_and(|token| self.is_live(*token));
                if held || self.queued.contains(&op) {
                    self.wrong(op, &format!("was answered {error:?} and holds or waits on"));
                }
            }
            (
                Call::Renew { token, .. } | Call::Unlock { token, .. },
                LockError::NotFound { .. },
            ) => {
                // Held all the time, or freed only by this call itself.
                let grant = self.grants.get(&token);
                if grant.is_some_and(|g| g.ended.is_none() && g.granted_us < called_us) {
                    self.wrong(op, "did not find what is held");
                }
            }
            _ => {}
        }
    }

    fn believed(&mut self, now: u64, token: u64, resource: u8, until_us: u64) {
        let Some(grant) = self.grants.get_mut(&token) else { return };
        grant.received = true;
        if grant.unlocking || matches!(grant.ended, Some(EndBy::Force | EndBy::Operator)) {
            return;
        }
        grant.believed_until_us = until_us;
        if until_us <= now {
            return;
        }
        let shared = grant.shared;
        let others: Vec<_> = self
            .grants
            .iter()
            .filter(|(other, grant)| {
                **other != token
                    && grant.resource == resource
                    && grant.believed_until_us > now
                    && !(grant.shared && shared)
            })
            .map(|(other, _)| *other)
            .collect();
        for other in others {
            self.violations.push(format!("two holders at {now} us: {token} and {other}"));
        }
    }

    fn ended(&mut self, now: u64, token: u64, by: EndBy) {
        let Some(grant) = self.grants.get_mut(&token) else { return };
        grant.ended = Some(by);
        let believed = grant.believed_until_us;
        let (granted_us, resource, own) = (grant.granted_us, grant.resource, grant.own);
        let (received, claimed) = (grant.received, grant.claimed);
        match by {
            EndBy::Undo if received || claimed => {
                self.violations.push(format!("{token} was received and undone at {now} us"));
            }
            EndBy::Owner => {
                let meant = |op: &Op| match op.call {
                    Some(Call::Unlock { token: named, .. }) if named == token => true,
                    Some(Call::Unlock { own: named, .. }) if named == own && own > 0 => {
                        op.ended_us.is_none_or(|ended| ended >= granted_us)
                    }
                    _ => false,
                };
                if !self.ops.values().any(meant) {
                    self.violations.push(format!("{token} was unlocked by nobody at {now} us"));
                }
            }
            EndBy::Ttl if believed > now => {
                self.violations
                    .push(format!("{token} ran out at {now}, believed to {believed}"));
            }
            EndBy::Force => {
                let meant = self.ops.values().any(|op| {
                    op.call == Some(Call::Force { resource })
                        && op.called_us <= now
                        && op.ended_us.is_none_or(|ended| ended >= granted_us)
                });
                if !meant {
                    self.violations
                        .push(format!("{token} was forced at {now} by an old force"));
                }
            }
            _ => {}
        }
        if matches!(by, EndBy::Force | EndBy::Operator)
            && let Some(grant) = self.grants.get_mut(&token)
        {
            grant.believed_until_us = grant.believed_until_us.min(now);
        }
    }

    fn at_the_end(&mut self, end: &End) {
        if !end.retired {
            self.violations.push("something is never settled".into());
        }
        if end.waiting > 0 {
            self.violations.push(format!("{} still wait: {:?}", end.waiting, self.queued));
        }
        if end.tasks > 0 && !self.any_killed {
            self.violations.push(format!("{} tasks are left", end.tasks));
        }
        for token in &end.live {
            let Some(grant) = self.grants.get(token) else { continue };
            let of_killed =
                self.any_killed || self.ops.get(&grant.op).is_some_and(|op| op.killed);
            if !grant.received && !grant.claimed && !of_killed {
                self.violations.push(format!("{token} of op {} is left behind", grant.op));
            }
        }
    }

    fn is_live(&self, token: u64) -> bool {
        self.grants.get(&token).is_some_and(|grant| grant.ended.is_none())
    }

    fn wrong(&mut self, op: OpId, what: &str) {
        self.violations.push(format!("op {op} {what}"));
    }
}
