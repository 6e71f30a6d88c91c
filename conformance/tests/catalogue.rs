//! The list of cases, and its copy in the documentation.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use leasehold_conformance::catalogue;

#[test]
fn every_name_is_unique_and_has_a_theme() {
    let cases = catalogue();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(names.iter().all(|name| name.contains(": ")));
}

/// To renew the copy, replace what follows its heading by the lines that this
/// test prints.
#[test]
fn the_documentation_lists_every_case() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, listed) = text.split_once("## All cases\n").expect("the list's heading");
    let expected = list();
    assert!(listed == expected, "docs/conformance.md must end with:\n{expected}");
}

fn list() -> String {
    let mut list = String::new();
    let mut last_theme = String::new();
    for case in catalogue() {
        let (theme, sentence) = case.name.split_once(": ").unwrap();
        if theme != last_theme {
            write!(list, "\n### {theme}\n\n").unwrap();
            theme.clone_into(&mut last_theme);
        }
        writeln!(list, "- {sentence} *({})*", case.demand).unwrap();
    }
    list
}
