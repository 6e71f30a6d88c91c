//! See `leasehold_component::fuzzing::component_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_component::fuzzing::component_protocol(data));
