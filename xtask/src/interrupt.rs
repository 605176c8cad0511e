//! Ctrl-C and its relatives, while a step runs in a process group of its own.
//!
//! The terminal sends its signal to xtask's group only, so xtask must pass the wish on: it notes
//! the signal here, and whoever waits for a step looks. Until [`notice`] is called signals end
//! xtask at once.
//!
//! # Safety
//! The handler stores one integer in an atomic: nothing that is unsafe in a signal handler.

#![expect(unsafe_code, reason = "installs a signal handler; see the module doc")]

use std::{
    ffi::c_int,
    sync::atomic::{AtomicI32, Ordering},
};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The signal that came, or 0.
static CAME: AtomicI32 = AtomicI32::new(0);

/// What a person or a supervisor sends to end a program.
const WISHES: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// From now on the wishes to end are noted, and [`came`] tells of them.
pub(crate) fn notice() {
    let flags = SaFlags::SA_RESTART;
    let action = SigAction::new(SigHandler::Handler(note), flags, SigSet::empty());
    for signal in WISHES {
        // SAFETY: `note` is async-signal-safe: it stores to an atomic and does nothing else.
        let installed = unsafe { sigaction(signal, &action) };
        // These three can be handled, so the call cannot fail; if it did, the default would stay.
        let _default_stays = installed;
    }
}

extern "C" fn note(signal: c_int) {
    CAME.store(signal, Ordering::Relaxed);
}

/// The signal that asked this program to end, if one did.
pub(crate) fn came() -> Option<i32> {
    match CAME.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(signal),
    }
}
