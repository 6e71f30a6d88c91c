//! See `leasehold::fuzzing::etcd_values`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold::fuzzing::etcd_values(data));
