//! See `leasehold::fuzzing::component_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::component_protocol(data));
