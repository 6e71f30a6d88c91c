//! See `leasehold_front::fuzzing::redis_front`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_front::fuzzing::redis_front(data));
