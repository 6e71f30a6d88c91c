//! See `leasehold_sidecar::fuzzing::sidecar_grpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_sidecar::fuzzing::sidecar_grpc(data));
