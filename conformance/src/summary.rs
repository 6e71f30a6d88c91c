//! The end of the report: failures counted by theme.

use std::fmt::Write as _;

use crate::outcome::{Outcome, Report};

/// Themes whose failures can mean that a resource has two holders, gravest first.
const SAFETY: [&str; 10] = [
    "exclusion",
    "linearizable",
    "try",
    "unlock",
    "renew",
    "ttl",
    "shared",
    "fencing",
    "two processes",
    "restart",
];

/// How many cases of each theme failed, those on safety first; empty if none failed.
#[must_use]
pub fn summary(reports: &[Report]) -> String {
    let mut themes: Vec<(&str, usize, usize)> = Vec::new();
    for report in reports {
        let theme = report.case.name.split_once(": ").map_or("", |(theme, _)| theme);
        let failed = usize::from(matches!(report.outcome, Outcome::Failed(_)));
        match themes.iter_mut().find(|(name, ..)| *name == theme) {
            Some((_, failures, all)) => {
                *failures += failed;
                *all += 1;
            }
            None => themes.push((theme, failed, 1)),
        }
    }
    themes.retain(|(_, failures, _)| *failures > 0);
    let rank = |theme: &str| SAFETY.iter().position(|name| *name == theme);
    themes.sort_by_key(|(theme, failures, _)| {
        (rank(theme).unwrap_or(SAFETY.len()), std::cmp::Reverse(*failures))
    });
    let mut text = String::new();
    let mut heading = "";
    for (theme, failures, all) in themes {
        let is_safety = rank(theme).is_some();
        let next = if is_safety { "safety" } else { "other themes" };
        if heading != next {
            heading = next;
            // Writing to a String does not fail.
            let _ = writeln!(text, "failed, {heading}:");
        }
        let _ = writeln!(text, "  {failures:>3} of {all:>3}  {theme}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case::{CaseInfo, Demand};

    #[test]
    fn failures_are_counted_by_theme_and_those_on_safety_come_first() {
        let report = |name: &str, failed| Report {
            case: CaseInfo { name: name.to_owned(), demand: Demand::Core },
            outcome: if failed { Outcome::Failed(String::new()) } else { Outcome::Passed },
            took: Duration::ZERO,
        };
        let reports = [
            report("invalid: a", true),
            report("invalid: b", true),
            report("names: a", false),
            report("fencing: a", true),
            report("exclusion: a", true),
            report("exclusion: b", false),
        ];
        assert_eq!(
            summary(&reports),
            "failed, safety:\n    1 of   2  exclusion\n    1 of   1  fencing\n\
             failed, other themes:\n    2 of   2  invalid\n"
        );
        assert_eq!(summary(&reports[2..3]), "");
    }
}
