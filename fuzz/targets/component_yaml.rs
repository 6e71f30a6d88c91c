//! See `leasehold::fuzzing::component_yaml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::component_yaml(data));
