//! A lock that is renewed in time survives an outage of up to half its TTL.

use super::{
    environment::Environment,
    grants::Grant,
    holding::safe_ns,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::history::{Call, Operation, Outcome};

/// How often a holder renews within a TTL.
pub(crate) const RENEWED_WITHIN: u32 = 3;

/// The shortest TTL that is checked: a busy machine can delay a call for more than half
/// of a shorter one.
const TTL_NS_MIN: u64 = 1_000_000_000;

/// Finds grants that were lost although their holder asked for a renewal every third of the
/// TTL, and faults lasted for at most half of it. The rule on lifetimes reports grants that
/// were lost before their safe deadline.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for grant in history.grants.iter().filter(|grant| grant.is_named_alone) {
        let mut renewals: Vec<_> = grant.renewals.clone();
        renewals.sort_by_key(|renewal| renewal.invoked_ns());
        let lost =
            renewals.iter().position(|it| matches!(it.known(), Some(Outcome::NotHeld { .. })));
        let Some(lost) = lost else { continue };
        let (before, loss) = (&renewals[..lost], renewals[lost]);
        if let Some(what) = lost_without_excuse(history, grant, before, loss, environment) {
            found.push(Violation {
                rule: Rule::RenewedSurvives,
                resource: history.name.into(),
                what,
                calls: vec![grant.call(), loss.invocation.id],
            });
        }
    }
}

fn lost_without_excuse(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    before: &[&Operation],
    loss: &Operation,
    environment: Environment<'_>,
) -> Option<String> {
    let last = grant
        .terms
        .iter()
        .filter(|term| term.operation.completed_ns() <= loss.invoked_ns())
        .max_by_key(|term| term.counted_from_ns)?;
    let (from_ns, ttl_ns) = (last.counted_from_ns, last.ttl_ns);
    let until_ns = loss.completed_ns();
    if ttl_ns < TTL_NS_MIN || environment.is_lost_by(last.operation, until_ns) {
        return None;
    }
    // Through a front it is up to three messages, each of which may be sent again.
    let asked_for_ns = until_ns.saturating_sub(loss.invoked_ns());
    if loss.is_through_front() && asked_for_ns > ttl_ns / u64::from(RENEWED_WITHIN) {
        return None;
    }
    let is_reported_elsewhere = until_ns <= from_ns + safe_ns(ttl_ns);
    let ended = grant.unlocks.iter().any(|it| !it.did_nothing() && it.invoked_ns() <= until_ns)
        || history.ends(grant).any(|it| it.invoked_ns() <= until_ns)
        || environment.faults.iter().any(|fault| {
            fault.voids_grant_of(history.name)
                && fault.over_ns >= grant.invoked_ns()
                && fault.from_ns <= until_ns
        });
    if is_reported_elsewhere || ended {
        return None;
    }
    // A tenth more, for a busy machine.
    let gap_ns = ttl_ns / u64::from(RENEWED_WITHIN) + ttl_ns / 10;
    let mut asked_ns = from_ns;
    for renewal in before.iter().copied().chain([loss]) {
        let shortens = matches!(&renewal.invocation.call, Call::Renew { ttl_ms, .. }
            if ttl_ms * 1_000_000 < ttl_ns && *ttl_ms > 0);
        if shortens || renewal.invocation.call.acquisition().is_some() {
            return None;
        }
        if renewal.invoked_ns() > asked_ns.saturating_add(gap_ns) {
            return None;
        }
        asked_ns = asked_ns.max(renewal.invoked_ns());
    }
    let outage_ns = environment.faulty_for_ns(from_ns, until_ns);
    (outage_ns < ttl_ns / 2).then(|| {
        format!(
            "token {} was renewed at {} for {} ms, further renewals were sent at least every \
             {} ms, and one was LOCK_NOT_FOUND at {}; faults lasted for {} ms of that time",
            grant.token,
            history.at(from_ns),
            ttl_ns / 1_000_000,
            gap_ns / 1_000_000,
            history.at(until_ns),
            outage_ns / 1_000_000,
        )
    })
}
