//! See `leasehold_pluggable::fuzzing::pluggable_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| leasehold_pluggable::fuzzing::pluggable_answers(data));
