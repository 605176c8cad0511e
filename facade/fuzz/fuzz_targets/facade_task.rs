//! See `facade::fuzzing::task`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| facade::fuzzing::task(bytes));
