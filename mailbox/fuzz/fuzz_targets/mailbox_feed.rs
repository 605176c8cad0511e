//! See `mailbox_fuzz::feed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mailbox_fuzz::feed(bytes));
