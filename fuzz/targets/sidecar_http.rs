//! See `leasehold_sidecar::fuzzing::sidecar_http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_sidecar::fuzzing::sidecar_http(data));
