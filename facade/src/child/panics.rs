//! Panics of user code in a child: caught, and told with their place.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::activity;
use crate::control::{FaultKind, RemoteError, panic_message};

thread_local! {
    /// Where the last panic of this thread began.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Replaces the hook that prints a panic: it is logged, the parent gets message and place, and decides what to show.
/// Where somebody watches from outside the stack goes to standard error too, since nothing else keeps it.
pub(super) fn remember() {
    // The hook before it is the user's, in a forked worker: it may own what is the parent's alone, such as a log file or
    // a directory that is removed, and must not be dropped here.
    std::mem::forget(std::panic::take_hook());
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        tracing::error!(
            thread = std::thread::current().name(),
            place = place.as_deref(),
            "panicked: {}",
            panic_message(info.payload())
        );
        PLACE.with(|cell| *cell.borrow_mut() = place);
        if activity::is_watched() {
            let stack = Backtrace::force_capture();
            // Nobody can be told that it failed.
            let _ = writeln!(io::stderr(), "{info}\n{stack}");
        }
    }));
}

/// Calls user code; a panic becomes an error that names the operation, the message and the place.
pub(super) fn caught<R>(
    path: &str,
    operation: impl FnOnce() -> String,
    call: impl FnOnce() -> R,
) -> Result<R, RemoteError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let message = panic_message(&*payload);
        let place = PLACE.with(|cell| cell.borrow_mut().take());
        let message = match place {
            Some(place) => format!("{message} (at {place})"),
            None => message,
        };
        RemoteError::new(FaultKind::Panicked, path, operation(), message)
    })
}

/// Runs the rest of a child's life; a panic that nobody else catches becomes the error that it ends with.
pub(super) fn as_last_words(life: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(life)).unwrap_or_else(|payload| {
        let place = PLACE.with(|cell| cell.borrow_mut().take());
        let place = place.map_or_else(String::new, |place| format!(" (at {place})"));
        Err(format!("panicked: {}{place}", panic_message(&*payload)))
    })
}
