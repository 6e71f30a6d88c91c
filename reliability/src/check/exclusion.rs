//! At most one exclusive holder at any instant, or any number of shared ones.

use super::{
    environment::Environment,
    holding::Held,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::history::Mode;

/// Finds two grants that exclude each other and were certainly held at the same time.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    let mut held: Vec<_> = history
        .grants
        .iter()
        .enumerate()
        .flat_map(|(place, grant)| {
            grant.held(history, environment).into_iter().map(move |held| (held, place))
        })
        .collect();
    held.sort_by_key(|(held, _)| held.from_ns);
    // Among the earlier grants, the one of each mode that is held longest.
    let mut longest: [Option<(Held, usize)>; 2] = [None; 2];
    for (held, place) in held {
        let mode = history.grants[place].mode();
        let overlapping = longest.iter().flatten().copied().find(|(before, other)| {
            *other != place
                && held.from_ns < before.until_ns
                && history.grants[*other].mode().excludes(mode)
        });
        if let Some((before, other)) = overlapping {
            found.push(Violation {
                rule: Rule::OneHolder,
                resource: history.name.into(),
                what: format!(
                    "{} token {} was held from {} until at least {}, and {} token {} from {} until at least {}",
                    history.grants[other].mode(),
                    history.grants[other].token,
                    history.at(before.from_ns),
                    history.at(before.until_ns),
                    mode,
                    history.grants[place].token,
                    history.at(held.from_ns),
                    history.at(held.until_ns),
                ),
                calls: vec![before.call, held.call],
            });
        }
        let longest = &mut longest[usize::from(mode == Mode::Shared)];
        if longest.is_none_or(|(longest, _)| longest.until_ns < held.until_ns) {
            *longest = Some((held, place));
        }
    }
}
