//! See `leasehold_sidecar::fuzzing::health_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_sidecar::fuzzing::health_answers(data));
