//! See `mailbox_fuzz::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mailbox_fuzz::packet(bytes));
