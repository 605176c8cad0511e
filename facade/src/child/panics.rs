//! Panics of user code in a child: caught, and told with their place.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::control::{FaultKind, RemoteError, panic_message};

thread_local! {
    /// Where the last panic of this thread began.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Replaces the hook that prints a panic: the parent gets message and place, and decides what to show.
pub(super) fn remember() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        PLACE.with(|cell| *cell.borrow_mut() = place);
    }));
}

/// Calls user code; a panic becomes an error that names the operation, the message and the place.
pub(super) fn caught<R>(
    path: &str,
    operation: &str,
    call: impl FnOnce() -> R,
) -> Result<R, RemoteError> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let message = panic_message(&*payload);
        let place = PLACE.with(|cell| cell.borrow_mut().take());
        let message = match place {
            Some(place) => format!("{message} (at {place})"),
            None => message,
        };
        RemoteError::new(FaultKind::Panicked, path, operation, message)
    })
}
