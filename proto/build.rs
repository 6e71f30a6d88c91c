//! Compiles the `.proto` files, and keeps their descriptors for gRPC reflection.

use std::{env, error::Error, path::PathBuf};

const FILES: &[&str] = &[
    "dapr/proto/components/v1/lock.proto",
    "leasehold/v1/locks.proto",
    "leasehold/v1/inspection.proto",
];
/// Compiled apart, so that reflection does not offer this part of Dapr's API as
/// if it were the whole.
const DAPR: &str = "dapr/proto/runtime/v1/dapr.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=dapr");
    println!("cargo:rerun-if-changed=leasehold");
    let descriptors = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    tonic_prost_build::configure()
        .file_descriptor_set_path(descriptors)
        .compile_protos(FILES, &["."])?;
    tonic_prost_build::configure().compile_protos(&[DAPR], &["."])?;
    Ok(())
}
