//! See `scenetest::fuzzing::channel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| scenetest::fuzzing::channel(bytes));
