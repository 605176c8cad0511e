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

/// A function that never returns, such as one that executes another program.
impl Ending for std::convert::Infallible {
    fn code(&self) -> u8 {
        match *self {}
    }
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
