//! See `leasehold_redis::fuzzing::redis_values`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_redis::fuzzing::redis_values(data));
