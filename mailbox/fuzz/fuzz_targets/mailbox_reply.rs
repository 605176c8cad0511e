//! See `mailbox_fuzz::reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mailbox_fuzz::reply(bytes));
