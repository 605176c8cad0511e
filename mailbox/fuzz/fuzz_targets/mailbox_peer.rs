//! See `mailbox_fuzz::peer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mailbox_fuzz::peer(bytes));
