//! Checks of answers.

use std::{collections::HashMap, time::Duration};

use anyhow::{anyhow, bail, ensure};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{
    answer::{Answer, Rejection},
    lacks::{Absent, DOMAIN, Lacks},
    reason::Reason,
    words::{Accepted, Readable, code_name, listed},
};

/// What to do about a wait that the server's gRPC library ended.
const DEADLINE_HINT: &str = "The status comes from the server's gRPC library or from the \
    transport, not from the store: the wait was not ended before its deadline. Answer a little \
    before the deadline, such as 50 ms and a hundredth of the time, so that the answer still \
    arrives.";

/// A refusal with the expected code, reason and domain. If the store never sends an
/// ErrorInfo, only the code is as expected.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    /// The ErrorInfo's metadata.
    pub(crate) metadata: HashMap<String, String>,
    fields: Option<Vec<String>>,
    lacks: Lacks,
}

impl Refusal {
    /// The metadata `held` of a LOCK_NOT_FOUND; `None` if the store never sends an
    /// ErrorInfo.
    pub(crate) fn held(&self) -> anyhow::Result<Option<bool>> {
        match self.metadata.get("held").map(String::as_str) {
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            None if self.lacks.error_info => Ok(None),
            None => bail!("the ErrorInfo has no metadata `held`, it must be `true` or `false`"),
            Some(other) => bail!(
                "the ErrorInfo's metadata `held` must be `true` or `false`, it is \"{other}\""
            ),
        }
    }

    /// Fails if the metadata `held` is not `expected`.
    pub(crate) fn held_is(&self, expected: bool) -> anyhow::Result<()> {
        let held = self.held()?;
        ensure!(
            held.is_none_or(|held| held == expected),
            "the ErrorInfo's metadata `held` must be `{expected}`"
        );
        Ok(())
    }

    /// The metadata of a RESOURCE_LOCKED with this key.
    pub(crate) fn metadata(&self, key: &str) -> anyhow::Result<&str> {
        match self.metadata.get(key) {
            Some(value) => Ok(value),
            None if self.lacks.error_info => {
                bail!(Absent(format!("no ErrorInfo of this store could carry `{key}`")))
            }
            None => bail!("the ErrorInfo has no metadata `{key}`"),
        }
    }

    /// Fails if the BadRequest does not name these fields, in any order.
    pub(crate) fn names(&self, fields: &[&str]) -> anyhow::Result<()> {
        let Some(named) = &self.fields else {
            ensure!(
                self.lacks.bad_request,
                "the status has no BadRequest, which must name {}",
                listed(fields)
            );
            return Ok(());
        };
        let mut named: Vec<_> = named.iter().map(String::as_str).collect();
        let mut fields = fields.to_vec();
        named.sort_unstable();
        fields.sort_unstable();
        ensure!(
            named == fields,
            "the BadRequest must name {}, it names {}",
            listed(&fields),
            listed(&named)
        );
        Ok(())
    }

    /// Fails if the refusal contains the secret.
    pub(crate) fn keeps_secret(&self, secret: &str) -> anyhow::Result<()> {
        let has_secret = |text: &str| text.contains(secret);
        ensure!(
            !has_secret(&self.message),
            "the message contains the secret {secret}: \"{}\"",
            self.message
        );
        for (key, value) in &self.metadata {
            ensure!(
                !has_secret(value),
                "the metadata `{key}` contains the secret {secret}: \"{value}\""
            );
        }
        Ok(())
    }
}

/// Checks an answer.
pub(crate) trait Expect<T> {
    /// Fails if the answer is not OK.
    fn or_fail(self, what: &str) -> anyhow::Result<T>;

    /// Fails if the answer is not a refusal with this reason.
    fn refused(self, reason: Reason) -> anyhow::Result<Refusal>
    where
        T: Accepted;
}

impl<T> Expect<T> for Answer<T> {
    fn or_fail(self, what: &str) -> anyhow::Result<T> {
        self.map_err(|rejection| anyhow!("{what}: {rejection}"))
    }

    fn refused(self, reason: Reason) -> anyhow::Result<Refusal>
    where
        T: Accepted,
    {
        let rejection = match self {
            Ok(answer) => {
                bail!("expected {}, it was accepted: {}", reason.name(), answer.describe())
            }
            Err(rejection) => rejection,
        };
        let Rejection { status, lacks, .. } = &rejection;
        let info = rejection.error_info();
        let is_it = match &info {
            Some(info) => {
                info.reason == reason.name() && (info.domain == DOMAIN || lacks.error_info)
            }
            None => lacks.error_info,
        };
        if status.code() != reason.code() || !is_it {
            let hint = if is_ended_by_transport(reason, &rejection) {
                format!(". {DEADLINE_HINT}")
            } else {
                String::new()
            };
            bail!(
                "expected the code {}{}, got {rejection}{hint}",
                code_name(reason.code()),
                expected_info(reason, *lacks)
            );
        }
        Ok(Refusal {
            message: status.message().to_owned(),
            metadata: info.map(|info| info.metadata).unwrap_or_default(),
            fields: rejection.bad_fields(),
            lacks: *lacks,
        })
    }
}

impl<T> Expect<T> for Result<T, Status> {
    fn or_fail(self, what: &str) -> anyhow::Result<T> {
        self.map_err(from_optional_service).or_fail(what)
    }

    fn refused(self, reason: Reason) -> anyhow::Result<Refusal>
    where
        T: Accepted,
    {
        self.map_err(from_optional_service).refused(reason)
    }
}

/// Checks the end of a wait at its deadline: `true` if the store says that nothing is held,
/// `false` if it says that the outcome is unknown. A store with a slow backend may do so, and
/// must then settle the outcome by itself.
pub(crate) fn wait_ended<T: Accepted>(answer: Answer<T>) -> anyhow::Result<bool> {
    match answer {
        Err(rejection) if rejection.is_outcome_unknown() => {
            Err::<T, _>(rejection).refused(Reason::OutcomeUnknown).map(|_| false)
        }
        answer => answer.refused(Reason::WaitDeadline).map(|_| true),
    }
}

/// A status of another service than the lock store.
fn from_optional_service(status: Status) -> Rejection {
    Rejection::answered(status, Lacks::default())
}

fn expected_info(reason: Reason, lacks: Lacks) -> String {
    if lacks.error_info {
        return format!(" of {}", reason.name());
    }
    format!(" with an ErrorInfo of reason {} and domain {DOMAIN}", reason.name())
}

/// Whether the server's gRPC library ended a wait. It sends no details.
fn is_ended_by_transport(reason: Reason, rejection: &Rejection) -> bool {
    let by_deadline = [Code::DeadlineExceeded, Code::Cancelled, Code::Unknown];
    reason == Reason::WaitDeadline
        && rejection.is_bare()
        && by_deadline.contains(&rejection.code())
}

/// Fails if `moment` is before `bound`.
pub(crate) fn not_before(moment: Instant, bound: Instant, what: &str) -> anyhow::Result<()> {
    let early = bound.saturating_duration_since(moment);
    ensure!(
        early.is_zero(),
        "{what} {} too early: times count from the sending of the request, and a grant lives at \
         least its granted TTL",
        Readable(early)
    );
    Ok(())
}

/// Fails if the TTL granted is shorter than the one asked for.
pub(crate) fn not_shorter(granted: Duration, asked: Duration) -> anyhow::Result<()> {
    ensure!(
        granted >= asked,
        "asked for {}, granted only {}",
        Readable(asked),
        Readable(granted)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    const NO_INFO: Lacks = Lacks { error_info: true, bad_request: true, renewal: false };

    fn refusal_of(status: Status, lacks: Lacks, reason: Reason) -> Result<Refusal, String> {
        let answer: Answer<()> = Err(Rejection::answered(status, lacks));
        answer.refused(reason).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn without_any_error_info_only_the_code_counts() {
        let status = || Status::not_found("no");
        assert!(refusal_of(status(), Lacks::default(), Reason::LockNotFound).is_err());
        let refusal = refusal_of(status(), NO_INFO, Reason::LockNotFound).unwrap();
        assert_eq!(refusal.held().unwrap(), None);
        refusal.held_is(true).unwrap();
        let error = refusal_of(status(), NO_INFO, Reason::ResourceLocked).unwrap_err();
        assert!(
            error.starts_with("expected the code ABORTED of RESOURCE_LOCKED, got"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_reason_fails_even_if_other_answers_have_none() {
        let mut details = ErrorDetails::new();
        details.set_error_info("OVERLOADED", "dapr.io", HashMap::new());
        let status = Status::with_error_details(Code::Aborted, "no", details);
        assert!(refusal_of(status, NO_INFO, Reason::ResourceLocked).is_err());
    }

    #[test]
    fn a_wait_may_end_without_its_outcome_being_known() {
        let refusal_of = |reason: &str, code| {
            let mut details = ErrorDetails::new();
            details.set_error_info(reason, "dapr.io", HashMap::new());
            let status = Status::with_error_details(code, "ended", details);
            wait_ended::<()>(Err(Rejection::answered(status, Lacks::default()))).ok()
        };
        assert_eq!(refusal_of("WAIT_DEADLINE", Code::DeadlineExceeded), Some(true));
        assert_eq!(refusal_of("OUTCOME_UNKNOWN", Code::Unknown), Some(false));
        assert_eq!(refusal_of("OUTCOME_UNKNOWN", Code::DeadlineExceeded), None);
        assert_eq!(refusal_of("STORE_UNAVAILABLE", Code::Unavailable), None);
        assert!(wait_ended(Ok(())).is_err(), "it was granted");
    }

    /// A transport that ends the call may use the same code.
    #[test]
    fn the_code_unknown_alone_does_not_mean_an_unknown_outcome() {
        let ended = |lacks| {
            wait_ended::<()>(Err(Rejection::answered(Status::unknown("broken"), lacks)))
        };
        let error = format!("{:#}", ended(Lacks::default()).unwrap_err());
        assert!(error.contains("Answer a little before the deadline"), "{error}");
        assert!(!ended(NO_INFO).unwrap(), "a store without any ErrorInfo is judged by codes");
    }

    #[test]
    fn a_server_that_answers_at_the_deadline_gets_a_hint() {
        for status in [Status::deadline_exceeded("late"), Status::cancelled("Timeout expired")]
        {
            let error = refusal_of(status, Lacks::default(), Reason::WaitDeadline).unwrap_err();
            assert!(error.contains("Answer a little before the deadline"), "{error}");
        }
        let error = refusal_of(Status::aborted(""), Lacks::default(), Reason::WaitDeadline)
            .unwrap_err();
        assert!(!error.contains("Answer a little"), "{error}");
    }
}
