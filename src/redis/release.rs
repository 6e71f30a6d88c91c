//! The end of grants: releases, forced unlocks and clean-ups.

use std::time::Duration;

use ::redis::Cmd;
use leasehold_lock::{
    Attempt, AttemptId, BackendError, FencingToken, GrantId, LockId, Release, ResourceId,
};
use tokio::time::{Instant, timeout_at};

use super::{
    core::{Core, unexpected},
    entry,
    reply::Reply,
    scripts::{PROVISIONAL, SCRIPTS},
    waiters::Stray,
};

impl Core {
    /// Ends the grant of an attempt, or removes its place in the queue.
    pub(super) async fn withdraw(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<(), BackendError> {
        let _turn = timeout_at(until, self.withdrawals.acquire()).await.map_err(|_| {
            BackendError::Unavailable("too many waiters are leaving at the same time".into())
        })?;
        let arguments = |request: &mut Cmd, _| {
            request
                .arg(attempt.id.to_string())
                .arg(entry::place(self.waiters.process(), attempt))
                .arg(0);
            self.handover_arguments(request);
        };
        self.run_withdrawal(&attempt.resource, arguments, until).await
    }

    /// Passes on a resource that was handed over to an attempt that does not wait here. A
    /// grant is kept, because the hand-over may have been confirmed in the meantime.
    pub(super) async fn pass_on(&self, stray: &Stray) -> Result<(), BackendError> {
        let until = Instant::now() + self.settings.operation_timeout;
        let arguments = |request: &mut Cmd, _| {
            request.arg(&stray.attempt).arg("").arg(1);
            self.handover_arguments(request);
        };
        self.run_withdrawal(&stray.resource, arguments, until).await
    }

    async fn run_withdrawal(
        &self,
        resource: &ResourceId,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<(), BackendError> {
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.withdraw, &keys, arguments, until).await?;
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
    /// The first sending ends whatever grant has the lock ID. If its reply is lost, it may or
    /// may not have taken effect. So each later sending, also of a later call, ends only
    /// what was there at the first sending:
    /// - A grant whose lock ID leasehold chose: no other grant ever has that ID.
    /// - A grant whose lock ID the caller chose, which may be granted again: only if its
    ///   token is at most the server's clock at the first sending
    ///   ([`Link::token_bound`](super::link::Link::token_bound)). The clock is never assumed
    ///   to be ahead of the server's. So a grant that another process made just before (or
    ///   any grant, if tokens are ahead of the clock) may be kept; it lasts until its TTL
    ///   ends.
    /// - A lock without a record (of the built-in `lock.redis`, or set by hand): only its
    ///   value can be compared.
    pub(super) async fn release_owned(
        &self,
        release: &Release,
        lock_id: &LockId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let is_repeated = release.target.fixed().is_some();
        let aim = |again: bool| {
            // The bound is set at the first sending, because only then a connection, and
            // with it a reading of the clock, is certain.
            let bound = release.target.fixed().unwrap_or_else(|| {
                let bound = self.link.token_bound(&release.resource).to_string();
                release.target.fix(bound.clone());
                bound.into()
            });
            if again || is_repeated { bound.into_string() } else { String::new() }
        };
        self.release(release, false, lock_id.as_str(), aim, until).await
    }

    /// Ends the grant with a lock ID that has this token.
    pub(super) async fn release_token(
        &self,
        release: &Release,
        lock_id: &LockId,
        token: FencingToken,
        until: Instant,
    ) -> Result<(), BackendError> {
        // The dot excludes a lock without a token.
        let aim = |_| format!("{}.", token.get());
        self.release(release, false, lock_id.as_str(), aim, until).await
    }

    /// Ends the grants of a resource, whatever their lock IDs.
    ///
    /// Forced unlocks are rare, so one may take another round trip to read first what holds
    /// the resource. If the reply to the first sending is lost, each later sending ends
    /// only what was read. This needs no clock, and works for a lock without a record.
    pub(super) async fn force(
        &self,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        let fixed = release.target.fixed();
        let is_first = fixed.is_none();
        let mark = match fixed {
            Some(mark) => mark,
            None => self.read_mark(&release.resource, until).await?,
        };
        release.target.fix(mark.clone());
        let aim =
            |again: bool| if again || !is_first { mark.to_string() } else { String::new() };
        self.release(release, true, "", aim, until).await
    }

    async fn read_mark(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Box<str>, BackendError> {
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.mark, &keys, |_, _| {}, until).await;
        let answer = answer.map_err(only_read)?;
        let mark: Option<String> = ::redis::from_redis_value(answer.value).unwrap_or_default();
        mark.map(String::into_boxed_str).ok_or(BackendError::NotHeld { held: false })
    }

    async fn release(
        &self,
        release: &Release,
        force: bool,
        lock_id: &str,
        aim: impl Fn(bool) -> String,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let keys = [resource.as_str(), &entry::counter_key(resource)];
        let mut continues = false;
        let (again, reply) = loop {
            let arguments = |request: &mut Cmd, again: bool| {
                request.arg(u8::from(force)).arg(lock_id).arg(aim(again || continues));
                self.handover_arguments(request);
            };
            let answer = self.link.run(&SCRIPTS.unlock, &keys, arguments, until).await?;
            let (again, reply) = (answer.again, Reply::read(answer.value)?);
            self.handed_over(resource, reply.handed());
            if !matches!(reply, Reply::More { .. }) {
                break (again, reply);
            }
            continues = true;
        };
        released(&reply, again)
    }

    /// Ends the grant with a public ID, whoever holds it.
    pub(super) async fn end(
        &self,
        resource: &ResourceId,
        id: GrantId,
        until: Instant,
    ) -> Result<(), BackendError> {
        self.end_grant(resource, &id.to_string(), "", until).await
    }

    /// Ends the grant with a lock ID if this attempt was the last that got it.
    pub(super) async fn end_claim(
        &self,
        resource: &ResourceId,
        lock_id: &LockId,
        attempt: AttemptId,
        until: Instant,
    ) -> Result<(), BackendError> {
        self.end_grant(resource, lock_id.as_str(), &attempt.to_string(), until).await
    }

    /// No other grant ever has this ID or this attempt, so this can be sent again at any time.
    async fn end_grant(
        &self,
        resource: &ResourceId,
        id: &str,
        by: &str,
        until: Instant,
    ) -> Result<(), BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request.arg(id).arg(by);
            self.handover_arguments(request);
        };
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.end_grant, &keys, arguments, until).await?;
        let reply = Reply::read(answer.value)?;
        self.handed_over(resource, reply.handed());
        released(&reply, answer.again)
    }

    /// After a hand-over by this process, plans a look that passes over a dead waiter. Other
    /// processes may not look for a long time.
    pub(super) fn handed_over(&self, resource: &ResourceId, handed: i64) {
        match handed {
            0 => {}
            1 => self.waiters.guard(resource, PROVISIONAL),
            _ => self.waiters.guard(resource, Duration::ZERO),
        }
    }
}

/// The result of a release. `again` says whether an earlier sending may have been executed.
fn released(reply: &Reply, again: bool) -> Result<(), BackendError> {
    match *reply {
        Reply::Done { .. } => Ok(()),
        Reply::Not { held } if again => Err(BackendError::Unknown(
            if held {
                "the connection was lost during the release; the grant that is there now was \
                 made after it, or shortly before"
            } else {
                "the connection was lost during the release; the grant is gone now"
            }
            .into(),
        )),
        Reply::Not { held } => Err(BackendError::NotHeld { held }),
        _ => Err(unexpected(reply)),
    }
}

/// The error of a script that only reads, where a lost reply does not matter.
fn only_read(error: BackendError) -> BackendError {
    match error {
        BackendError::Unknown(why) => BackendError::Unavailable(why),
        other => other,
    }
}
