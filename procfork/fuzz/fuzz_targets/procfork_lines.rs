//! See `procfork::fuzzing::lines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| procfork::fuzzing::lines(bytes));
