//! See `procfork::fuzzing::boot`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| procfork::fuzzing::boot(bytes));
