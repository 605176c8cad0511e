//! See `taskgraph::capture::fuzzing::raw_tensor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taskgraph::capture::fuzzing::raw_tensor(bytes));
