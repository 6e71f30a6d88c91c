//! Every trap of docs/traps.md has its tests, every planted defect its code, and every link
//! of a page its file.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs::{read_dir, read_to_string},
    path::{Path, PathBuf},
    process::Command,
};

const BACKENDS: [&str; 3] = ["memory", "redis", "etcd"];
const PAGE: &str = "docs/traps.md";

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().find(|folder| folder.join(PAGE).exists()).unwrap()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The places where a trap is shown to be avoided, with `all` expanded.
fn places<'a>(named: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let expand = |place| if place == "all" { BACKENDS.to_vec() } else { vec![place] };
    named.into_iter().filter(|place| !place.is_empty()).flat_map(expand).collect()
}

/// A row of the page.
struct Trap<'a> {
    number: usize,
    shown_on: BTreeSet<&'a str>,
    cannot_reach: BTreeSet<&'a str>,
}

impl<'a> Trap<'a> {
    fn parse(row: &'a str) -> Option<Self> {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let &[_, number, _, _, shown_on, reasons, _] = cells.as_slice() else { return None };
        let reasons = reasons.split("; ").filter_map(|reason| reason.split_once(": "));
        Some(Self {
            number: number.parse().ok()?,
            shown_on: places(shown_on.split(", ")),
            cannot_reach: places(reasons.flat_map(|(backends, _)| backends.split(", "))),
        })
    }
}

#[test]
fn every_trap_has_a_test_or_a_reason_on_every_backend() {
    let page = read_to_string(root().join(PAGE)).unwrap();
    let traps: Vec<_> = page.lines().filter_map(Trap::parse).collect();
    let numbers: Vec<_> = traps.iter().map(|trap| trap.number).collect();
    assert_eq!(numbers, (1..=traps.len()).collect::<Vec<_>>());

    let index = output("scripts/index", &[]);
    let tags: Vec<(usize, &str)> = index
        .lines()
        .map(|line| {
            let mut fields = line.split('\t');
            (fields.next().unwrap().parse().unwrap(), fields.next().unwrap())
        })
        .collect();
    assert!(tags.iter().all(|(number, _)| numbers.contains(number)), "{index}");

    for trap in &traps {
        let tagged = tags.iter().filter(|(number, _)| *number == trap.number);
        let tagged = places(tagged.map(|(_, place)| *place).filter(|place| *place != "defect"));
        let number = trap.number;
        assert_eq!(tagged, trap.shown_on, "tests (left) and {PAGE} (right), trap {number}");
        for backend in BACKENDS {
            assert_ne!(
                tagged.contains(backend),
                trap.cannot_reach.contains(backend),
                "trap {number} needs a test or a reason on {backend}, and not both"
            );
        }
    }
}

#[test]
fn every_test_that_finds_a_planted_defect_is_there() {
    let files = output("git", &["ls-files", "*.rs"]);
    let sources: String =
        files.lines().filter_map(|file| read_to_string(root().join(file)).ok()).collect();
    let mut missing = Vec::new();
    for patch in patches() {
        let head = read_to_string(&patch).unwrap();
        for test in head.lines().filter_map(|line| line.strip_prefix("Test: ")) {
            // A case of the suite is in quotes, after its theme.
            let there = match test.split('"').nth(1) {
                Some(case) => sources.contains(&format!("\"{case}\"")),
                None => {
                    let path = test.split(" -- ").next().unwrap().trim_end();
                    let name = path.rsplit([':', ' ']).next().unwrap();
                    sources.contains(&format!("fn {name}("))
                }
            };
            if !there {
                missing.push(format!("{}: {test}", patch.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_planted_defect_applies() {
    let applies = |patch: &Path| {
        let mut git = Command::new("git");
        git.args(["apply", "--check"]).arg(patch).current_dir(root());
        git.output().unwrap().status.success()
    };
    let stale: Vec<_> = patches().into_iter().filter(|patch| !applies(patch)).collect();
    assert!(stale.is_empty(), "bring these up to the code: {stale:?}");
}

#[test]
fn every_link_of_a_page_leads_to_a_file() {
    let pages = output("git", &["ls-files", "*.md"]);
    let mut broken = Vec::new();
    for page in pages.lines().map(Path::new) {
        let Ok(text) = read_to_string(root().join(page)) else { continue };
        // Code blocks have no links.
        let prose: String = text.split("\n```").step_by(2).collect();
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.contains(':')) {
            if !root().join(page).with_file_name(link).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

fn patches() -> Vec<PathBuf> {
    let folder = read_dir(root().join("reliability/defects")).unwrap();
    folder.map(|entry| entry.unwrap().path()).collect()
}
