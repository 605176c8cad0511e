//! A test harness for programs that fork.
//!
//! The standard harness runs tests in threads, and a process with threads cannot fork safely. This
//! one stays single-threaded and runs *every test in a process of its own*, with a hard deadline,
//! and afterwards checks that nothing which the test started is left. It speaks the conventions
//! of the standard one, so that `cargo test`, filters and other runners work as usual.
//!
//! ```toml
//! [[test]]
//! name = "it"
//! path = "tests/it/main.rs"
//! harness = false
//! ```
//!
//! ```no_run
//! mod close {
//!     pub fn leaves_no_process_behind() {
//!         if !std::path::Path::new("/proc").exists() {
//!             procfork::testing::skip("there is no /proc");
//!         }
//!     }
//! }
//!
//! procfork::testing::tests! {
//!     close::leaves_no_process_behind,
//! }
//! ```
//!
//! A test that is missing from the list is reported by the compiler as dead code.
//!
//! # The processes
//!
//! ```text
//! runner          one thread; starts supervisors, some at a time, collects their output
//! └─ supervisor   adopts orphans, keeps the deadline, ends what is left over
//!    └─ test      runs the function; leads a group of its own
//! ```
//!
//! # Verdicts
//!
//! - ok: the function returned, and all that it started was gone within two seconds.
//! - ignored, with the reason: it called [`skip`].
//! - failed: it panicked, ended in another way, passed its deadline (`PROCFORK_TEST_SECONDS`, 30 if
//!   unset), or left a process behind, which is named and killed. Zombies that it left are
//!   reaped without a word: a test that cares counts them itself.

mod args;
mod report;
mod runner;
mod supervisor;

pub use runner::main;

use std::fmt;
use std::panic;

/// A test: a name as in `module::function`, and the function.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Test {
    /// What filters are matched against.
    pub name: &'static str,
    /// Runs in a process of its own.
    pub run: fn(),
}

impl Test {
    /// See [`tests!`](crate::testing::tests), which calls this for each path.
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self { name, run }
    }
}

/// Ends the calling test as ignored, with this reason. For what the machine does not offer.
///
/// It unwinds, so that what the test has started is cleaned up.
pub fn skip(reason: impl fmt::Display) -> ! {
    panic::resume_unwind(Box::new(Skipped(reason.to_string())))
}

/// The payload of [`skip`].
struct Skipped(String);

/// A list of tests from paths of functions, for [`main`].
#[doc(hidden)]
#[macro_export]
macro_rules! __procfork_test_list {
    ($($test:path),* $(,)?) => {
        &[$($crate::testing::Test::new(stringify!($test), $test)),*]
    };
}

/// Defines `main` of a test binary from paths of functions. See the module.
#[doc(hidden)]
#[macro_export]
macro_rules! __procfork_tests {
    ($($test:path),* $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::testing::main($crate::testing::list![$($test),*])
        }
    };
}

#[doc(inline)]
pub use crate::{__procfork_test_list as list, __procfork_tests as tests};
