//! See `facade::fuzzing::graph_key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| facade::fuzzing::graph_key(bytes));
