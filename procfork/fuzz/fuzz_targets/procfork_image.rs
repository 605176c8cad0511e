//! See `procfork::fuzzing::image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| procfork::fuzzing::image(bytes));
