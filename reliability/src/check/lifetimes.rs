//! A grant lasts for its whole TTL, and does not reappear after its end.

use super::{
    environment::Environment,
    grants::Grant,
    holding::{Held, SAVED_LATE_NS},
    resource::ResourceHistory,
    rule::{Rule, Violation},
    tokens,
};
use crate::{
    history::{Call, Operation, Outcome},
    world::Backend,
};

/// How long after its TTL a backend with exact expiry may still have a grant.
const EXPIRY_SLACK_NS: u64 = 50_000_000;

/// Finds grants that ended early, reappeared, or were shorter than requested.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for operation in &history.operations {
        lengths(history, operation, found);
    }
    for grant in &history.grants {
        let held = grant.held(history, environment);
        for operation in grant.renewals.iter().chain(&grant.unlocks) {
            ended_early(history, grant, &held, operation, found);
            if !grant.is_named_alone || grant.is_foreign() {
                continue;
            }
            if let Some((end_ns, why)) = ended_before(history, grant, operation, environment) {
                let is_own = !environment.may_succeed_by_another(operation);
                revived(history, grant, operation, is_own, end_ns, &why, found);
            }
        }
    }
}

fn lengths(history: &ResourceHistory<'_>, operation: &Operation, found: &mut Vec<Violation>) {
    let asked_ms = match &operation.invocation.call {
        Call::Try(acquisition)
        | Call::Lock { acquisition, .. }
        | Call::ForeignTry(acquisition)
        | Call::FrontTry(acquisition) => acquisition.ttl_ms,
        Call::Renew { ttl_ms, .. } => *ttl_ms,
        _ => return,
    };
    let (ttl_ns, waited_ns) = match operation.known() {
        Some(Outcome::Granted(granted)) => (granted.ttl_ns, granted.waited_ns),
        Some(Outcome::Renewed { ttl_ns }) => (*ttl_ns, 0),
        _ => return,
    };
    let mut violated = |what| {
        found.push(Violation {
            rule: Rule::WholeTtl,
            resource: history.name.into(),
            what,
            calls: vec![operation.invocation.id],
        });
    };
    if ttl_ns < asked_ms.max(100) * 1_000_000 {
        violated(format!("a TTL of {asked_ms} ms was asked for, and {ttl_ns} ns were granted"));
    }
    let elapsed_ns = operation.completed_ns() - operation.invoked_ns();
    if waited_ns > elapsed_ns {
        violated(format!("the wait took {elapsed_ns} ns, and the answer says {waited_ns} ns"));
    }
}

/// Finds a call that was answered `LOCK_NOT_FOUND` although the grant was certainly held
/// during the whole call.
fn ended_early(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    held: &[Held],
    operation: &Operation,
    found: &mut Vec<Violation>,
) {
    if !matches!(operation.known(), Some(Outcome::NotHeld { .. })) {
        return;
    }
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    // Held since before the call, and to be held still at its completion.
    if let Some(held) =
        held.iter().find(|held| held.from_ns <= from_ns && until_ns <= held.until_ns)
    {
        found.push(Violation {
            rule: Rule::WholeTtl,
            resource: history.name.into(),
            what: format!(
                "token {} is granted until at least {}, and its {} at {} was LOCK_NOT_FOUND",
                grant.token,
                history.at(held.until_ns),
                operation.invocation.call.name(),
                history.at(until_ns),
            ),
            calls: vec![held.call, operation.invocation.id],
        });
    }
}

/// By when the grant had certainly ended before the call, and why; `None` if it may not
/// have ended.
fn ended_before(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    operation: &Operation,
    environment: Environment<'_>,
) -> Option<(u64, String)> {
    let invoked_ns = operation.invoked_ns();
    let is_kept = |ended: &Operation| !environment.is_lost_by(ended, operation.completed_ns());
    let unlocks = grant
        .unlocks
        .iter()
        .filter(|unlock| is_kept(unlock))
        .filter(|unlock| unlock.known() == Some(&Outcome::Unlocked))
        // An unlock that was answered earlier ended another grant of the same lock ID.
        .filter(|unlock| unlock.completed_ns() >= grant.invoked_ns())
        .map(|unlock| (unlock.completed_ns(), "it was unlocked".to_owned()));
    let forces = history
        .ends(grant)
        .filter(|end| is_kept(end))
        .filter(|end| end.invoked_ns() > grant.completed_ns())
        // If further grants may have been ended, it may be another one.
        .filter(|end| !matches!(end.known(), Some(Outcome::Ended { more: true, .. })))
        .map(|end| (end.completed_ns(), "it was forced".to_owned()));
    let successors = history
        .grants
        .iter()
        .filter(|other| other.excludes(grant))
        .filter(|other| is_successor(other, grant))
        .filter(|other| other.acquisitions.iter().any(|made| is_kept(made)))
        // If the order of tokens was lost, the greater token may be the older one.
        .filter(|other| !tokens::excused(other, grant, environment))
        .map(|other| (other.completed_ns(), format!("token {} was granted", other.token)));
    let expiry = expired_by(history, grant, operation, environment)
        .map(|expired_ns| (expired_ns, "its TTL was over".to_owned()));
    unlocks.chain(forces).chain(successors).chain(expiry).find(|(end_ns, _)| {
        *end_ns < invoked_ns
            // A grant that an older data set brought back was not revived by leasehold.
            && !environment.faults.iter().any(|fault| {
                fault.brings_back()
                    && fault.over_ns >= grant.invoked_ns()
                    && end_ns.saturating_add(SAVED_LATE_NS) >= fault.from_ns
                    && fault.from_ns <= operation.completed_ns()
            })
    })
}

/// Whether a grant that excludes another one was certainly made after it.
fn is_successor(later: &Grant<'_>, earlier: &Grant<'_>) -> bool {
    if later.has_no_token() || earlier.has_no_token() {
        return later.asked_ns() > earlier.completed_ns();
    }
    // A grant that was made earlier is no successor, whatever its token.
    later.token > earlier.token && later.completed_ns() >= earlier.invoked_ns()
}

/// By when it had expired; `None` if that is not certain. etcd may keep a lease for longer.
fn expired_by(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    operation: &Operation,
    environment: Environment<'_>,
) -> Option<u64> {
    let is_exact = match environment.backend {
        Backend::Memory => true,
        Backend::Redis | Backend::RedisSentinel | Backend::RedisCluster => {
            !environment.faults.iter().any(|fault| {
                fault.prolongs(history.name)
                    && fault.until_ns >= grant.invoked_ns()
                    && fault.from_ns <= operation.completed_ns()
            })
        }
        Backend::Etcd => false,
    };
    // A renewal that was sent again may be carried out once more, after its answer.
    let is_exact = is_exact
        && !grant.renewals.iter().any(|renewal| {
            renewal.invocation.id != operation.invocation.id
                && renewal.is_through_front()
                && environment.loses_replies(renewal)
        });
    let mut before = grant.terms.iter().filter(|term| {
        term.operation.invocation.id != operation.invocation.id
            && term.operation.invoked_ns() < operation.completed_ns()
    });
    let latest_ns = before.try_fold(0, |latest_ns, term| {
        let completed_ns = term.operation.completed_ns();
        (completed_ns < u64::MAX)
            .then(|| latest_ns.max(completed_ns.saturating_add(term.ttl_ns)))
    })?;
    (is_exact && latest_ns > 0).then_some(latest_ns.saturating_add(EXPIRY_SLACK_NS))
}

fn revived(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    operation: &Operation,
    is_own: bool,
    end_ns: u64,
    why: &str,
    found: &mut Vec<Violation>,
) {
    let rule = match operation.known() {
        Some(Outcome::Renewed { .. }) => Rule::NoRevival,
        Some(Outcome::Unlocked) if is_own => Rule::OwnUnlock,
        _ => return,
    };
    found.push(Violation {
        rule,
        resource: history.name.into(),
        what: format!(
            "token {} had ended by {} ({why}), and its {} at {} succeeded",
            grant.token,
            history.at(end_ns),
            operation.invocation.call.name(),
            history.at(operation.invoked_ns()),
        ),
        calls: vec![grant.call(), operation.invocation.id],
    });
}
