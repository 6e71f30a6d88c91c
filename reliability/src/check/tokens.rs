//! Tokens rise in real-time order: strictly, unless both grants are shared. Grants of clients
//! of Redis are left out, because their tokens are unknown.

use super::{
    environment::Environment,
    grants::Grant,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::{faults::Voids, history::Mode};

/// JSON numbers below this are exact in every language.
const TOKEN_END: i64 = 1 << 53;

/// Checks that every token is below 2^53, is not lower than those of earlier grants, and is
/// greater than those of earlier grants that exclude its own.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    let mut violated = |what: String, calls: Vec<u64>| {
        let resource = history.name.into();
        found.push(Violation { rule: Rule::TokensRise, resource, what, calls });
    };
    let grants: Vec<_> = history.grants.iter().filter(|grant| !grant.has_no_token()).collect();
    for grant in &grants {
        if !(1..TOKEN_END).contains(&grant.token) {
            violated(
                format!("token {} is not between 1 and 2^53", grant.token),
                vec![grant.call()],
            );
        }
        let mut requests = grant.acquisitions.iter().map(|op| {
            let asked = op.invocation.call.acquisition()?;
            Some((asked.request_id.as_deref()?, asked.mode))
        });
        let first = requests.next().flatten();
        if requests.any(|request| request.is_none() || request != first) {
            violated(
                format!(
                    "token {} was granted more than once, and not for one request ID and mode",
                    grant.token
                ),
                grant.acquisitions.iter().map(|op| op.invocation.id).collect(),
            );
        }
    }
    // Compare each grant with those that were made before it was asked for.
    let mut made = grants.clone();
    made.sort_by_key(|grant| grant.completed_ns());
    for later in &grants {
        for earlier in &made {
            if earlier.completed_ns() >= later.asked_ns() {
                break;
            }
            let is_low = earlier.token > later.token
                || (earlier.token == later.token && earlier.excludes(later));
            if is_low && !excused(earlier, later, environment) {
                violated(
                    format!(
                        "token {} was granted at {}, and the lower or equal token {} was asked for at {}",
                        earlier.token,
                        history.at(earlier.completed_ns()),
                        later.token,
                        history.at(later.asked_ns()),
                    ),
                    vec![earlier.call(), later.call()],
                );
            }
        }
    }
    for (place, grant) in grants.iter().enumerate() {
        for other in &grants[..place] {
            if grant.token == other.token
                && grant.excludes(other)
                && !excused(other, grant, environment)
            {
                violated(
                    format!("two grants have token {}", grant.token),
                    vec![other.call(), grant.call()],
                );
            }
        }
    }
    as_fenced(history, environment, &mut violated);
}

/// Replays the grants that were certainly held against a fenced register, in the order in
/// which they were held, even if their calls overlapped. An exclusive grant writes and a
/// shared one reads. The register refuses a token that is lower than that of a grant which
/// excludes it and accessed the register before, and nothing may be refused.
fn as_fenced(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    violated: &mut impl FnMut(String, Vec<u64>),
) {
    let mut held: Vec<_> = history
        .grants
        .iter()
        .filter(|grant| !grant.has_no_token())
        .filter_map(|grant| {
            let held = grant.held(history, environment);
            // One that was lost at once gets no access after a later one.
            let first = held.iter().find(|held| held.from_ns < held.until_ns)?;
            Some((first.from_ns, grant))
        })
        .collect();
    held.sort_by_key(|(from_ns, _)| *from_ns);
    let (mut writer, mut reader): (Option<&Grant<'_>>, Option<&Grant<'_>>) = (None, None);
    for (from_ns, later) in held {
        let refuses = [writer, reader.filter(|reader| reader.excludes(later))];
        for earlier in refuses.into_iter().flatten() {
            let is_reported_above = earlier.completed_ns() < later.invoked_ns();
            if earlier.token > later.token
                && !is_reported_above
                && !excused(earlier, later, environment)
            {
                violated(
                    format!(
                        "token {} was held before the lower token {}, which was held at {}",
                        earlier.token,
                        later.token,
                        history.at(from_ns),
                    ),
                    vec![earlier.call(), later.call()],
                );
            }
        }
        let greatest = if later.mode() == Mode::Shared { &mut reader } else { &mut writer };
        if greatest.is_none_or(|greatest| {
            greatest.token < later.token || excused(greatest, later, environment)
        }) {
            *greatest = Some(later);
        }
    }
}

/// Whether a fault between two grants may have lost the order of tokens.
pub(crate) fn excused(
    earlier: &Grant<'_>,
    later: &Grant<'_>,
    environment: Environment<'_>,
) -> bool {
    environment.faults.iter().any(|fault| {
        fault.voids == Voids::GrantsAndTokens
            && fault.from_ns <= later.completed_ns()
            && fault.over_ns >= earlier.invoked_ns()
    })
}
