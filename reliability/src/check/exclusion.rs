//! At most one holder at any instant.

use super::{
    environment::Environment,
    holding::Held,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};

/// Finds two grants that were certainly held at the same time.
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
    let mut longest: Option<(Held, usize)> = None;
    for (held, place) in held {
        if let Some((before, other)) = longest.filter(|(_, other)| *other != place)
            && held.from_ns < before.until_ns
        {
            found.push(Violation {
                rule: Rule::OneHolder,
                resource: history.name.into(),
                what: format!(
                    "token {} was held from {} until at least {}, and token {} from {} until at least {}",
                    history.grants[other].token,
                    history.at(before.from_ns),
                    history.at(before.until_ns),
                    history.grants[place].token,
                    history.at(held.from_ns),
                    history.at(held.until_ns),
                ),
                calls: vec![before.call, held.call],
            });
        }
        if longest.is_none_or(|(longest, _)| longest.until_ns < held.until_ns) {
            longest = Some((held, place));
        }
    }
}
