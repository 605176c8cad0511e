//! See `scenetest::fuzzing::event`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| scenetest::fuzzing::event(bytes));
