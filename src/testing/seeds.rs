//! The inputs that are kept for each fuzz harness.

use std::{fs, panic::catch_unwind, path::Path};

/// Runs a harness on every input under `fuzz/corpus-seeds`, and on an empty one. Also checks
/// that a fuzz program runs it.
///
/// # Panics
///
/// An input breaks a property of the harness, or there is none, or the program is missing.
pub fn no_seed_breaks(name: &str, harness: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let program = fs::read_to_string(fuzz.join(format!("targets/{name}.rs"))).unwrap();
    assert!(program.contains(&format!("::{name}(")), "{program}");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("name = \"{name}\"")));

    harness(b"");
    let files: Vec<_> = fs::read_dir(fuzz.join("corpus-seeds").join(name)).unwrap().collect();
    assert!(!files.is_empty(), "{name} has no seeds");
    let broken: Vec<_> = files
        .into_iter()
        .map(|file| file.unwrap().path())
        .filter(|path| catch_unwind(|| harness(&fs::read(path).unwrap())).is_err())
        .collect();
    assert!(broken.is_empty(), "broken by {broken:#?}");
}
