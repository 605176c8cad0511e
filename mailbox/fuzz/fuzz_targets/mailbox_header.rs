//! See `mailbox_fuzz::header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mailbox_fuzz::header(bytes));
