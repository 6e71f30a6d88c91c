//! Compiles the `.proto` files with protox, so that no protoc is needed, and
//! keeps their descriptors for gRPC reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

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
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin");
    fs::write(out, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    tonic_prost_build::configure().compile_fds(protox::compile([DAPR], ["."])?)?;
    Ok(())
}
