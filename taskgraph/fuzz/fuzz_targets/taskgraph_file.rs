//! See `taskgraph::capture::fuzzing::file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskgraph::capture::fuzzing::file(bytes));
