//! See `provenance_fuzz::ptr`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| provenance_fuzz::ptr(bytes));
