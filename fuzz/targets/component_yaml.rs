//! See `leasehold_manifest::fuzzing::component_yaml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_manifest::fuzzing::component_yaml(data));
