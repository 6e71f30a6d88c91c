//! A lock that is renewed in time survives an outage of up to half its TTL.

use super::{
    Rule, Surroundings, Violation, at,
    grants::{Grant, safe_ns},
    resource::ResourceHistory,
};
use crate::history::{Call, Operation, Outcome};

/// A holder renews this often within a TTL.
pub(crate) const RENEWED_WITHIN: u32 = 3;

/// Of shorter TTLs a machine that is busy for a moment takes more than half.
const TTL_NS_MIN: u64 = 1_000_000_000;

/// Looks for grants that were lost although their holder asked for a renewal each
/// third of the TTL, and nothing was wrong for longer than half of it. What is
/// lost before its safe deadline is told by the rule on lifetimes.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    found: &mut Vec<Violation>,
) {
    for grant in history.grants.iter().filter(|grant| grant.is_named_alone) {
        let mut renewals: Vec<_> = grant.renewals.clone();
        renewals.sort_by_key(|renewal| renewal.invoked_ns());
        let lost =
            renewals.iter().position(|it| matches!(it.known(), Some(Outcome::NotHeld { .. })));
        let Some(lost) = lost else { continue };
        let (before, loss) = (&renewals[..lost], renewals[lost]);
        if let Some(what) = lost_without_need(history, grant, before, loss, surroundings) {
            found.push(Violation {
                rule: Rule::RenewedSurvives,
                resource: history.name.into(),
                what,
                calls: vec![grant.call(), loss.invocation.id],
            });
        }
    }
}

fn lost_without_need(
    history: &ResourceHistory<'_>,
    grant: &Grant<'_>,
    before: &[&Operation],
    loss: &Operation,
    surroundings: Surroundings<'_>,
) -> Option<String> {
    let last = grant
        .terms
        .iter()
        .filter(|term| term.operation.completed_ns() <= loss.invoked_ns())
        .max_by_key(|term| term.counted_from_ns)?;
    let (from_ns, ttl_ns) = (last.counted_from_ns, last.ttl_ns);
    if ttl_ns < TTL_NS_MIN {
        return None;
    }
    let until_ns = loss.completed_ns();
    let is_told_elsewhere = until_ns <= from_ns + safe_ns(ttl_ns);
    let ended = grant.unlocks.iter().any(|it| !it.did_nothing() && it.invoked_ns() <= until_ns)
        || history.forces().any(|it| it.invoked_ns() <= until_ns)
        || surroundings.faults.iter().any(|fault| {
            fault.voids_grant_of(history.name)
                && fault.over_ns >= grant.invoked_ns()
                && fault.from_ns <= until_ns
        });
    if is_told_elsewhere || ended {
        return None;
    }
    // A busy machine adds to it.
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
    let outage_ns = surroundings.wrong_for_ns(from_ns, until_ns);
    (outage_ns < ttl_ns / 2).then(|| {
        format!(
            "token {} was renewed at {} for {} ms, its renewal was asked for at least every \
             {} ms after that, and was LOCK_NOT_FOUND at {}; something was wrong for {} ms \
             of that time",
            grant.token,
            at(history, from_ns),
            ttl_ns / 1_000_000,
            gap_ns / 1_000_000,
            at(history, until_ns),
            outage_ns / 1_000_000,
        )
    })
}
