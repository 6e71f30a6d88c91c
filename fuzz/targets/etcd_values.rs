//! See `leasehold_etcd::fuzzing::etcd_values`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_etcd::fuzzing::etcd_values(data));
