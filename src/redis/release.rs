//! The end of grants: releases, forced unlocks and clean-ups.

use std::{sync::Arc, time::Duration};

use ::redis::Cmd;
use leasehold_lock::{
    Attempt, AttemptId, BackendError, FencingToken, GrantId, LockId, Release, ResourceId,
};
use tokio::time::{Instant, timeout_at};

use super::{
    core::{Core, unexpected},
    entry,
    library::Verb,
    link::in_turn,
    reply::Reply,
    times::TIMES,
    waiters::{StraightGrant, Stray},
};

impl Core {
    /// Ends the grant of an attempt, or removes its place in the queue.
    pub(super) async fn withdraw(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<(), BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request
                .arg(attempt.id.to_string())
                .arg(entry::place(self.waiters.process(), attempt))
                .arg(0)
                .arg(self.caller());
        };
        let leaving = self.run_withdrawal(&attempt.resource, arguments, until);
        // Without a link the call waits for one.
        let Some(link) = self.router.link(&attempt.resource) else { return leaving.await };
        let turn = Arc::clone(&link.withdrawals).acquire_owned();
        let Ok(Ok(turn)) = timeout_at(until, turn).await else {
            let why = "too many waiters are leaving at the same time";
            return Err(BackendError::Unavailable(why.into()));
        };
        in_turn(turn, leaving).await
    }

    /// Passes on a resource that was handed over to an attempt that does not wait here. A
    /// grant is kept, because the hand-over may have been confirmed in the meantime.
    pub(super) async fn pass_on(&self, stray: &Stray) -> Result<(), BackendError> {
        let until = Instant::now() + self.settings.operation_timeout;
        let arguments = |request: &mut Cmd, _| {
            request.arg(&stray.attempt).arg("").arg(1).arg(self.caller());
        };
        self.run_withdrawal(&stray.resource, arguments, until).await
    }

    async fn run_withdrawal(
        &self,
        resource: &ResourceId,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<(), BackendError> {
        let answer = self.router.run(Verb::Withdraw, resource, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { handed } => {
                self.handed_over(resource, handed);
                Ok(())
            }
            // An earlier sending may have removed the attempt.
            Reply::Not { .. } if answer.again => Ok(()),
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the grant with a lock ID.
    ///
    /// If it is not known which grant that is, the first sending ends it only if no other grant
    /// can ever have its lock ID, because leasehold chose it. Otherwise the answer names the
    /// grant, and the next sending ends that one. So a sending whose answer is lost can be
    /// repeated at any time. The target stays open until the answer names the grant, unless
    /// leasehold may have chosen the lock ID: then the first sending may already end it.
    pub(super) async fn release_owned(
        self: &Arc<Self>,
        release: &Release,
        lock_id: &LockId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let fixed = release.target.fixed();
        let is_first = fixed.is_none();
        let known = || release.known.map(|id| id.to_string().into()).unwrap_or_default();
        let aim = fixed.unwrap_or_else(known);
        if !aim.is_empty() || lock_id.may_be_random() {
            release.target.fix(aim.clone());
        }
        let ending = Ending { lock_id: lock_id.as_str(), aim: &aim };
        let (again, reply) = self.send(resource, ending, until).await?;
        match reply {
            // Nothing was ended yet: without an aim, only a grant ends whose lock ID leasehold
            // chose, and the grant that is named has one that a caller chose.
            Reply::Other { target } if is_first && (aim.is_empty() || !again) => {
                release.target.fix(target.clone());
                let ending = Ending { lock_id: lock_id.as_str(), aim: &target };
                self.end_one(resource, ending, until).await
            }
            reply => released(&reply, again),
        }
    }

    /// Ends the grant with a lock ID that has this token.
    pub(super) async fn release_token(
        self: &Arc<Self>,
        resource: &ResourceId,
        lock_id: &LockId,
        token: FencingToken,
        until: Instant,
    ) -> Result<(), BackendError> {
        let aim = format!("t{}", token.get());
        let ending = Ending { lock_id: lock_id.as_str(), aim: &aim };
        self.end_one(resource, ending, until).await
    }

    /// Ends the grants of a resource, whatever their lock IDs: those that it first finds there.
    pub(super) async fn force(
        self: &Arc<Self>,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        let mut fixed = release.target.fixed();
        let is_first = fixed.is_none();
        loop {
            let aim = match fixed.take() {
                Some(target) => target,
                None => self.read_target(&release.resource, until).await?,
            };
            release.target.fix(aim.clone());
            let ending = Ending { lock_id: "", aim: &aim };
            let (again, reply) = self.send(&release.resource, ending, until).await?;
            // What was read ended by itself, and there is something else.
            let is_replaced = is_first && !again && reply == Reply::Not { held: true };
            if !is_replaced || Instant::now() >= until {
                return released(&reply, again);
            }
        }
    }

    async fn read_target(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Box<str>, BackendError> {
        // The grants to end may be those of readers.
        self.router.expect_readers(resource);
        let answer = self.router.run(Verb::Target, resource, |_, _| {}, until).await;
        let answer = answer.map_err(only_read)?;
        let target: Option<String> =
            ::redis::from_redis_value(answer.value).unwrap_or_default();
        target.map(String::into_boxed_str).ok_or(BackendError::NotHeld { held: false })
    }

    /// Ends the grant with a public ID, whoever holds it.
    pub(super) async fn end(
        self: &Arc<Self>,
        resource: &ResourceId,
        id: GrantId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let ending = Ending { lock_id: "", aim: &id.to_string() };
        self.end_one(resource, ending, until).await
    }

    /// Ends the grant with a lock ID if this attempt was the last that got it.
    pub(super) async fn end_claim(
        self: &Arc<Self>,
        resource: &ResourceId,
        lock_id: &LockId,
        attempt: AttemptId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let aim = format!("l{attempt}");
        let ending = Ending { lock_id: lock_id.as_str(), aim: &aim };
        self.end_one(resource, ending, until).await
    }

    async fn end_one(
        self: &Arc<Self>,
        resource: &ResourceId,
        ending: Ending<'_>,
        until: Instant,
    ) -> Result<(), BackendError> {
        let (again, reply) = self.send(resource, ending, until).await?;
        released(&reply, again)
    }

    /// Sends a release until it has ended all that it names. Returns also whether an earlier
    /// sending may have been executed.
    async fn send(
        self: &Arc<Self>,
        resource: &ResourceId,
        ending: Ending<'_>,
        until: Instant,
    ) -> Result<(bool, Reply), BackendError> {
        if self.waiters.waiting(resource) == 0 {
            return self.send_all(resource, ending, false, until).await;
        }
        // The answer may have the grant of a waiter, so it is read though the caller goes away.
        let core = Arc::clone(self);
        let resource = resource.clone();
        let [lock_id, aim] = [ending.lock_id, ending.aim].map(str::to_owned);
        let sent = tokio::spawn(async move {
            let ending = Ending { lock_id: &lock_id, aim: &aim };
            core.send_all(&resource, ending, true, until).await
        });
        sent.await.unwrap_or_else(|_| {
            Err(BackendError::Unknown("the release ended without an answer".into()))
        })
    }

    async fn send_all(
        &self,
        resource: &ResourceId,
        ending: Ending<'_>,
        is_straight: bool,
        until: Instant,
    ) -> Result<(bool, Reply), BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request.arg(ending.lock_id).arg(ending.aim).arg(self.caller());
            if is_straight {
                request.arg(1);
            }
        };
        let mut has_ended = false;
        loop {
            let answer = self.router.run(Verb::Release, resource, arguments, until).await?;
            let reply = Reply::read(answer.value)?;
            self.handed_over(resource, reply.handed());
            match reply {
                Reply::More { .. } => has_ended = true,
                Reply::Passed { attempt, token } => {
                    // An earlier sending made no grant that still exists: this one would have found
                    // nothing to end.
                    self.waiters.grant(&attempt, StraightGrant { token, since: answer.since });
                    return Ok((answer.again, Reply::Done { handed: 0 }));
                }
                // The part that was ended was the last.
                Reply::Not { .. } if has_ended => {
                    return Ok((answer.again, Reply::Done { handed: 0 }));
                }
                reply => return Ok((answer.again, reply)),
            }
        }
    }

    /// After a hand-over by this process, plans a look that passes over a dead waiter. Other
    /// processes may not look for a long time.
    pub(super) fn handed_over(&self, resource: &ResourceId, handed: i64) {
        match handed {
            0 => {}
            1 => self.waiters.guard(resource, TIMES.provisional),
            _ => self.waiters.guard(resource, Duration::ZERO),
        }
    }
}

const REPLACED: &str = "the connection was lost during the release; the grant that is there now \
    is another";
const GONE: &str = "the connection was lost during the release; the grant is gone now";

/// What a release ends: see the verb `release`.
#[derive(Clone, Copy)]
struct Ending<'a> {
    /// Empty for whoever holds the resource.
    lock_id: &'a str,
    /// Empty if it is not known.
    aim: &'a str,
}

/// The result of a release. `again` says whether an earlier sending may have been executed.
fn released(reply: &Reply, again: bool) -> Result<(), BackendError> {
    match *reply {
        Reply::Done { .. } => Ok(()),
        Reply::Other { .. } if !again => Err(BackendError::NotHeld { held: true }),
        Reply::Other { .. } => Err(BackendError::Unknown(REPLACED.into())),
        Reply::Not { held } if again => {
            Err(BackendError::Unknown(if held { REPLACED } else { GONE }.into()))
        }
        Reply::Not { held } => Err(BackendError::NotHeld { held }),
        _ => Err(unexpected(reply)),
    }
}

/// The error of a function that only reads, where a lost reply does not matter.
fn only_read(error: BackendError) -> BackendError {
    match error {
        BackendError::Unknown(why) => BackendError::Unavailable(why),
        other => other,
    }
}
