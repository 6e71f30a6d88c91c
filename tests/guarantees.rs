//! What docs/guarantees.md names is there: tests, conformance cases, planted
//! defects.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs::{read_dir, read_to_string},
    path::{Path, PathBuf},
    process::Command,
};

const TRAPS: u32 = 61;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    read_to_string(root().join("docs/guarantees.md")).unwrap()
}

/// The names in backquotes that have a `::`, as place and name.
fn named(document: &str) -> Vec<(String, String)> {
    let quoted = document.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|name| name.split_once("::"))
        .filter(|(_, name)| !name.starts_with('…'))
        .map(|(place, name)| (place.to_owned(), name.to_owned()))
        .collect()
}

#[test]
fn every_test_that_it_names_is_there() {
    let suite = read_to_string(root().join("docs/conformance.md")).unwrap();
    let is_there = |place: &str, name: &str| match place {
        "conformance" => name.split_once(": ").is_some_and(|(theme, case)| {
            suite
                .split("\n### ")
                .filter(|section| section.starts_with(theme))
                .any(|section| section.contains(&format!("\n- {case} *(")))
        }),
        file => read_to_string(root().join(file))
            .is_ok_and(|source| source.contains(&format!("fn {name}("))),
    };
    let named = named(&document());
    assert!(named.len() > 100, "{}", named.len());
    let missing: Vec<_> = named.iter().filter(|(place, name)| !is_there(place, name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_trap_has_its_place() {
    let document = document();
    let missing: Vec<u32> =
        (1..=TRAPS).filter(|n| !document.contains(&format!("\n**{n}. "))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_planted_defect_is_listed() {
    let document = document();
    let rows: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let kept: Vec<String> = patches(&root().join("reliability/defects"));
    let kept: BTreeSet<&str> = kept.iter().map(String::as_str).collect();
    assert_eq!(rows, kept);
}

/// Six of them no longer did after a change of their context, which only a run of
/// `make planted` over all showed.
#[test]
fn every_planted_defect_applies() {
    let stale: Vec<String> = patches(&root().join("reliability/defects"))
        .into_iter()
        .filter(|name| {
            let patch = format!("reliability/defects/{name}.patch");
            let checked = Command::new("git")
                .args(["apply", "--check", &patch])
                .current_dir(root())
                .output();
            !checked.unwrap().status.success()
        })
        .collect();
    assert!(stale.is_empty(), "bring these up to the code: {stale:?}");
}

fn patches(folder: &Path) -> Vec<String> {
    read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}
