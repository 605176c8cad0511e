//! See `facade::fuzzing::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| facade::fuzzing::record(bytes));
