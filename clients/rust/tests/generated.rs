//! The committed code matches the `.proto` files of the repository.

use std::{env, fs, path::Path};

const FILES: [&str; 2] = ["leasehold/v1/locks.proto", "leasehold/v1/inspection.proto"];
const COMMITTED: &str = "src/generated/leasehold.v1.rs";

/// With `LEASEHOLD_GENERATE` in the environment it writes the code instead (`./generate`).
#[test]
fn the_generated_code_is_that_of_the_protos() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(FILES, [home.join("../../proto")]).unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(output.path())
        .compile_fds(descriptors)
        .unwrap();
    let generated = fs::read_to_string(output.path().join("leasehold.v1.rs")).unwrap();
    let committed = home.join(COMMITTED);
    if env::var_os("LEASEHOLD_GENERATE").is_some() {
        fs::write(&committed, &generated).unwrap();
    }
    let committed = fs::read_to_string(&committed).unwrap_or_default();
    assert!(generated == committed, "{COMMITTED} is not up to date; run ./generate");
}
