//! See `scenetest::fuzzing::tensors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| scenetest::fuzzing::tensors(bytes));
