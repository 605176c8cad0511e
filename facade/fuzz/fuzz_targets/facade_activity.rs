//! See `facade::fuzzing::activity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| facade::fuzzing::activity(bytes));
