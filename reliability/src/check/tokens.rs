//! Tokens strictly rise in real-time order.

use super::{Rule, Surroundings, Violation, at, grants::Grant, resource::ResourceHistory};
use crate::faults::Voids;

/// What JSON numbers of every language carry exactly.
const TOKEN_END: i64 = 1 << 53;

/// Every token is one grant's alone, greater than that of every grant that was
/// made before it, and below 2^53.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    found: &mut Vec<Violation>,
) {
    let mut violated = |what: String, calls: Vec<u64>| {
        let resource = history.name.into();
        found.push(Violation { rule: Rule::TokensRise, resource, what, calls });
    };
    let grants: Vec<_> = history.grants.iter().filter(|grant| !grant.is_foreign()).collect();
    for grant in &grants {
        if !(1..TOKEN_END).contains(&grant.token) {
            violated(
                format!("token {} is not between 1 and 2^53", grant.token),
                vec![grant.call()],
            );
        }
        let mut requests = grant.acquisitions.iter().map(|op| {
            op.invocation.call.acquisition().and_then(|asked| asked.request_id.as_deref())
        });
        let first = requests.next().flatten();
        if requests.any(|request| request.is_none() || request != first) {
            violated(
                format!(
                    "token {} was granted more than once, not by one request ID",
                    grant.token
                ),
                grant.acquisitions.iter().map(|op| op.invocation.id).collect(),
            );
        }
    }
    // The greatest token of those made before each grant was asked for.
    let mut made = grants.clone();
    made.sort_by_key(|grant| grant.completed_ns());
    for later in &grants {
        for earlier in &made {
            if earlier.completed_ns() >= later.invoked_ns() {
                break;
            }
            if earlier.token >= later.token && !excused(earlier, later, surroundings) {
                violated(
                    format!(
                        "token {} was granted at {}, and token {} asked for only at {}",
                        earlier.token,
                        at(history, earlier.completed_ns()),
                        later.token,
                        at(history, later.invoked_ns()),
                    ),
                    vec![earlier.call(), later.call()],
                );
            }
        }
    }
    for (place, grant) in grants.iter().enumerate() {
        for other in &grants[..place] {
            if grant.token == other.token && !excused(other, grant, surroundings) {
                violated(
                    format!("two grants have token {}", grant.token),
                    vec![other.call(), grant.call()],
                );
            }
        }
    }
    by_holding(history, surroundings, &mut violated);
}

/// Of two grants that were certainly held, the later has the greater token,
/// also when their calls overlapped.
fn by_holding(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    violated: &mut impl FnMut(String, Vec<u64>),
) {
    let mut held: Vec<_> = history
        .grants
        .iter()
        .filter(|grant| !grant.is_foreign())
        .filter_map(|grant| Some((grant.held(history, surroundings).first()?.from_ns, grant)))
        .collect();
    held.sort_by_key(|(from_ns, _)| *from_ns);
    for pair in held.windows(2) {
        let ((_, earlier), (from_ns, later)) = (pair[0], pair[1]);
        let is_told_above = earlier.completed_ns() < later.invoked_ns();
        if earlier.token > later.token
            && !is_told_above
            && !excused(earlier, later, surroundings)
        {
            violated(
                format!(
                    "token {} was held before token {}, held at {}",
                    earlier.token,
                    later.token,
                    at(history, from_ns),
                ),
                vec![earlier.call(), later.call()],
            );
        }
    }
}

/// Whether a fault between two grants may have lost the order of tokens.
pub(crate) fn excused(
    earlier: &Grant<'_>,
    later: &Grant<'_>,
    surroundings: Surroundings<'_>,
) -> bool {
    surroundings.faults.iter().any(|fault| {
        fault.voids == Voids::GrantsAndTokens
            && fault.from_ns <= later.completed_ns()
            && fault.over_ns >= earlier.invoked_ns()
    })
}
