//! See `taskgraph::capture::fuzzing::definition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskgraph::capture::fuzzing::definition(bytes));
