//! Runs every harness on its seeds.

use std::{fs, panic::catch_unwind, path::Path};

use super::TARGETS;

#[test]
fn no_seed_breaks_a_property() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus-seeds");
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        let files: Vec<_> = fs::read_dir(seeds.join(name)).unwrap().collect();
        assert!(!files.is_empty(), "{name} has no seeds");
        for file in files {
            let path = file.unwrap().path();
            let seed = fs::read(&path).unwrap();
            if catch_unwind(|| target(&seed)).is_err() {
                broken.push(path);
            }
        }
    }
    assert!(broken.is_empty(), "broken by {broken:#?}");
}

#[test]
fn every_target_has_a_fuzz_program() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        let program = fs::read_to_string(fuzz.join(format!("targets/{name}.rs"))).unwrap();
        assert!(program.contains(&format!("leasehold::fuzzing::{name}(")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}

#[test]
fn an_empty_input_breaks_no_property() {
    for (_, target) in TARGETS {
        target(b"");
    }
}
