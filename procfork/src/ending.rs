//! What a child's function returns, and what becomes of it.

use std::fmt;

/// The result of a child's function: an exit code, and perhaps last words for the parent.
///
/// A `Result` gives its error's text as the last words and exit code 1.
pub trait Ending {
    /// The exit code.
    fn code(&self) -> u8;

    /// What the parent should read in [`Child::last_words`](crate::Child::last_words).
    fn last_words(&self) -> Option<String> {
        None
    }
}

impl Ending for () {
    fn code(&self) -> u8 {
        0
    }
}

impl Ending for u8 {
    fn code(&self) -> u8 {
        *self
    }
}

/// A function that never returns: it executes another program, or sleeps until it is killed.
impl Ending for Never {
    fn code(&self) -> u8 {
        match *self {}
    }
}

/// The type `!`, which cannot be written here yet: it is what a function returns that never does.
type Never = <fn() -> ! as Function>::Output;

/// Names the return type of a function.
#[expect(
    unnameable_types,
    reason = "public because an impl above refers to it, of use to nobody"
)]
pub trait Function {
    /// The return type.
    type Output;
}

impl<R> Function for fn() -> R {
    type Output = R;
}

impl<T: Ending, E: fmt::Display> Ending for Result<T, E> {
    fn code(&self) -> u8 {
        self.as_ref().map_or(1, Ending::code)
    }

    fn last_words(&self) -> Option<String> {
        match self {
            Ok(value) => value.last_words(),
            Err(error) => Some(error.to_string()),
        }
    }
}
