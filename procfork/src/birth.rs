//! The child's side of a fork: from the first instruction to `_exit`.
//!
//! The child is a copy of a process with *one* thread, so that no lock is held by a thread that it
//! does not have, and allocation works. What it must not do is end in any way but `exit_now`:
//! returning, unwinding past this file, or `exit` would run what belongs to the parent.
//!
//! Steps, in an order that matters:
//! 1. the death signal, then the question whether the parent is still there: from here on the
//!    child cannot be left behind;
//! 2. the group, so that a group kill reaches it;
//! 3. signal dispositions, while all signals are still blocked: no handler of the parent runs;
//! 4. streams, then every descriptor that was not given is closed;
//! 5. the name;
//! 6. its own death word and watch, for its own children;
//! 7. the panic hook that keeps last words;
//! 8. an empty signal mask, then the function.

use std::any::Any;
use std::ffi::CString;
use std::io::{self, Write as _};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use crate::cause::exit_code;
use crate::context::ChildContext;
use crate::ending::Ending;
use crate::lifeline;
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::sys::page::LifePage;
use crate::sys::signals::{self, Mask};
use crate::sys::{fds, prctl, process};
use crate::watch::{Lineage, ParentWatch};

/// What the parent prepared.
pub(crate) struct Birth<'fd> {
    pub(crate) options: ForkOptions<'fd>,
    pub(crate) page: LifePage,
    pub(crate) lineage: Lineage,
}

/// Brings the child up, runs its function, and ends the process.
pub(crate) fn run<F, R>(birth: Birth<'_>, f: F) -> !
where
    F: FnOnce(ChildContext) -> R,
    R: Ending,
{
    let Birth {
        options,
        page,
        mut lineage,
    } = birth;
    // First of all: the page carries the last words of whatever fails below.
    let page = lifeline::adopt(page);
    if let Group::New = options.group {
        lineage.tree = Some(Pid::this());
    }
    let watch = ParentWatch::new(lineage, options.death_signal);
    if let Err(failure) = set_up(&options, &watch) {
        page.write_words(&format!("failed to {}: {}", failure.step, failure.source));
        process::exit_now(exit_code::SETUP_FAILED);
    }
    keep_last_words(page);
    let context = ChildContext {
        name: options.name,
        parent: watch,
        fds: options.given,
    };
    // The mask blocked everything since before the fork. An empty one is always accepted.
    let _ = Mask::empty().install();
    let code = conclude(page, panic::catch_unwind(AssertUnwindSafe(|| f(context))));
    process::exit_now(code)
}

struct SetupFailure {
    step: &'static str,
    source: io::Error,
}

fn set_up(options: &ForkOptions<'_>, watch: &ParentWatch) -> Result<(), SetupFailure> {
    let failed = |step| move |source| SetupFailure { step, source };
    prctl::set_death_signal(options.death_signal).map_err(failed("arm the death signal"))?;
    if !watch.is_alive_now() {
        watch.leave();
    }
    join(options.group).map_err(failed("enter its process group"))?;
    signals::reset_dispositions();
    fds::replace_streams(&options.streams).map_err(failed("replace its streams"))?;
    let open = options.open_numbers();
    fds::close_all_but(&open).map_err(failed("close what it was not given"))?;
    for fd in open {
        fds::set_close_on_exec(fd).map_err(failed("mark a descriptor close-on-exec"))?;
    }
    prctl::set_name(&short_name(&options.name)).map_err(failed("set its name"))?;
    watch.install();
    Ok(())
}

fn join(group: Group) -> io::Result<()> {
    match group {
        Group::Inherit => Ok(()),
        Group::New => process::set_group(Pid::this(), Pid::this()),
        Group::Join(group) => process::set_group(Pid::this(), group),
    }
}

/// The first 15 bytes, cut at a character. A zero byte was refused before.
fn short_name(name: &str) -> CString {
    let fits = |cut: &usize| name.is_char_boundary(*cut);
    let cut = (0..=name.len().min(COMM_BYTES))
        .rev()
        .find(fits)
        .unwrap_or(0);
    CString::new(&name[..cut]).unwrap_or_default()
}

/// Bytes that the kernel keeps of a name, without the zero byte.
const COMM_BYTES: usize = 15;

/// Writes each panic's message to the page, and lets the hook before print it as usual.
///
/// A panic that the function catches itself is overwritten by what the function ends with.
fn keep_last_words(page: &'static LifePage) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        page.write_words(&panic_text(info));
        before(info);
    }));
}

fn panic_text(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "a value that is not text",
    };
    match info.location() {
        Some(place) => format!("panicked at {}:{}: {message}", place.file(), place.line()),
        None => format!("panicked: {message}"),
    }
}

/// The exit code and the last words of what the function did.
fn conclude<R: Ending>(page: &LifePage, outcome: Result<R, Box<dyn Any + Send>>) -> u8 {
    let code = match &outcome {
        Ok(ending) => {
            page.write_words(&ending.last_words().unwrap_or_default());
            ending.code()
        }
        // The hook has written the words.
        Err(_) => exit_code::PANICKED,
    };
    // A destructor of the result or of the panic's payload may panic: it never runs.
    std::mem::forget(outcome);
    // Only what this child printed itself: the parent flushed before the fork.
    let _ = io::stdout().flush();
    process::flush_c_streams();
    code
}
