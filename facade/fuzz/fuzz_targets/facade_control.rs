//! See `facade::fuzzing::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| facade::fuzzing::control(bytes));
