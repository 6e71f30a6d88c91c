//! See `leasehold::fuzzing::redis_front`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::redis_front(data));
