//! The child's side: from its first instruction to `_exit`.
//!
//! A forked child is a copy of a process with *one* thread, so that no lock is held by a thread that it
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
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};

use crate::boot::Boot;
use crate::cause::exit_code;
use crate::context::ChildContext;
use crate::ending::Ending;
use crate::lifeline;
use crate::options::{ForkOptions, Group};
use crate::pid::Pid;
use crate::registry;
use crate::signal::Signal;
use crate::sys::page::LifePage;
use crate::sys::signals::{self, Mask};
use crate::sys::{self, fds, prctl, process};
use crate::watch::{Lineage, ParentWatch};

/// What the parent prepared for a fork.
pub(crate) struct Birth<'fd> {
    pub(crate) options: ForkOptions<'fd>,
    pub(crate) page: LifePage,
    pub(crate) lineage: Lineage,
    /// What its environment says of its descent.
    pub(crate) ancestry: Option<CString>,
}

/// Brings a forked child up, runs its function, and ends the process.
pub(crate) fn run<F, R>(birth: Birth<'_>, f: F) -> !
where
    F: FnOnce(ChildContext) -> R,
    R: Ending,
{
    let Birth {
        options,
        page,
        mut lineage,
        ancestry,
    } = birth;
    // First of all: the page carries the last words of whatever fails below.
    let page = lifeline::adopt(page);
    if let Some(ancestry) = ancestry {
        sys::spawn::put_variable(ancestry);
    }
    if let Group::New = options.group {
        lineage.tree = Some(Pid::this());
    }
    let watch = ParentWatch::new(lineage, options.death_signal);
    or_exit(page, arm(options.death_signal, &watch));
    or_exit(page, join(options.group));
    or_exit(
        page,
        furnish(
            &options.name,
            &options.streams,
            &options.open_numbers(),
            &watch,
        ),
    );
    let (name, fds) = (options.name, options.given);
    let context = ChildContext {
        name,
        parent: watch,
        fds,
        args: Vec::new(),
    };
    live(page, || registry::finish(f(context)))
}

/// Brings a spawned child up, runs its registered function, and ends the process.
///
/// The kernel and the C library have set group, mask, dispositions and streams already.
pub(crate) fn run_spawned(boot: Boot, page: LifePage) -> ! {
    let page = lifeline::adopt(page);
    let signal = Signal::new(boot.death_signal);
    // Before anything that takes time: from here on the kernel ends it with its parent.
    or_exit(
        page,
        prctl::set_death_signal(signal).map_err(failed("arm the death signal")),
    );
    let watch = ParentWatch::new(lineage_of(&boot), signal);
    or_exit(page, arm(signal, &watch));
    let of_crashes = boot.crashes.iter().flatten();
    let open = boot.given.iter().chain(&boot.kept).chain(of_crashes);
    let open: Vec<RawFd> = open.copied().collect();
    or_exit(
        page,
        furnish(&boot.name, &[None, None, None], &open, &watch),
    );
    report_crashes(&boot);
    let fds: io::Result<_> = boot
        .given
        .iter()
        .map(|fd| sys::spawn::inherited(*fd))
        .collect();
    let fds = or_exit(page, fds.map_err(failed("find what it was given")));
    let options = ForkOptions::new(boot.name.clone());
    let found = registry::find(&options, &boot.function).map_err(io::Error::other);
    let function = or_exit(page, found.map_err(failed("find its function")));
    let context = ChildContext {
        name: boot.name,
        parent: watch,
        fds,
        args: boot.args,
    };
    live(page, || (function.run)(context))
}

/// As its parent does. What cannot be set up is no reason to end: a crash is not told then.
fn report_crashes(boot: &Boot) {
    #[cfg(feature = "dump")]
    if let Some([Ok(pipe), Ok(page)]) = boot.crashes.map(|fds| fds.map(sys::spawn::inherited)) {
        let _ = sys::crash::arm([pipe, page]);
    }
    #[cfg(not(feature = "dump"))]
    let _ = boot;
}

/// Where a spawned child stands, by the pages that its parent named.
fn lineage_of(boot: &Boot) -> Lineage {
    let parent_word = boot.parent_page.and_then(|(fd, owner)| {
        let file = sys::spawn::inherited(fd).ok()?;
        lifeline::map(file.as_fd(), owner)
    });
    let root_word = if boot.parent_is_root {
        parent_word
    } else {
        boot.root_page.and_then(|source| source.map())
    };
    Lineage {
        parent: boot.parent,
        parent_word,
        parent_is_root: boot.parent_is_root,
        root_word,
        root_source: boot.root_page,
        tree: if boot.leads {
            Some(Pid::this())
        } else {
            boot.tree
        },
    }
}

/// Runs the function of a child that is all set up, and ends the process.
fn live(page: &'static LifePage, f: impl FnOnce() -> (u8, Option<String>)) -> ! {
    keep_last_words(page);
    // The mask blocked everything since before the fork. An empty one is always accepted.
    let _ = Mask::empty().install();
    let code = conclude(page, panic::catch_unwind(AssertUnwindSafe(f)));
    process::exit_now(code)
}

/// Ends a child that could not be set up; the page says why.
fn or_exit<T>(page: &LifePage, step: Result<T, SetupFailure>) -> T {
    step.unwrap_or_else(|failure| {
        page.write_words(&format!("failed to {}: {}", failure.step, failure.source));
        process::exit_now(exit_code::SETUP_FAILED)
    })
}

struct SetupFailure {
    step: &'static str,
    source: io::Error,
}

fn failed(step: &'static str) -> impl FnOnce(io::Error) -> SetupFailure {
    move |source| SetupFailure { step, source }
}

/// The death signal, then the question whether it came too late.
fn arm(signal: Option<Signal>, watch: &ParentWatch) -> Result<(), SetupFailure> {
    prctl::set_death_signal(signal).map_err(failed("arm the death signal"))?;
    if !watch.is_alive_now() {
        watch.leave();
    }
    Ok(())
}

fn join(group: Group) -> Result<(), SetupFailure> {
    let joined = match group {
        Group::Inherit => Ok(()),
        Group::New => process::set_group(Pid::this(), Pid::this()),
        Group::Join(group) => process::set_group(Pid::this(), group),
    };
    joined.map_err(failed("enter its process group"))
}

/// Everything that a child has and is shown as, once it can no longer be left behind.
fn furnish(
    name: &str,
    streams: &[Option<OwnedFd>; 3],
    open: &[RawFd],
    watch: &ParentWatch,
) -> Result<(), SetupFailure> {
    signals::reset_dispositions();
    #[cfg(feature = "dump")]
    sys::crash::rearm();
    fds::replace_streams(streams).map_err(failed("replace its streams"))?;
    let open = &also_carried(open);
    fds::close_all_but(open).map_err(failed("close what it was not given"))?;
    for fd in open {
        fds::set_close_on_exec(*fd).map_err(failed("mark a descriptor close-on-exec"))?;
    }
    prctl::set_name(&short_name(name)).map_err(failed("set its name"))?;
    watch.install();
    Ok(())
}

/// Besides what was given: where this process reports its crashes, if it does.
fn also_carried(open: &[RawFd]) -> Vec<RawFd> {
    let carried = where_crashes_go().into_iter().flatten();
    open.iter().copied().chain(carried).collect()
}

/// The descriptors through which this process reports its crashes, if it does.
pub(crate) fn where_crashes_go() -> Option<[RawFd; 2]> {
    #[cfg(feature = "dump")]
    return sys::crash::carried();
    #[cfg(not(feature = "dump"))]
    None
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
fn conclude(page: &LifePage, outcome: Result<(u8, Option<String>), Box<dyn Any + Send>>) -> u8 {
    let code = match outcome {
        Ok((code, words)) => {
            page.write_words(&words.unwrap_or_default());
            code
        }
        // The hook has written the words. A destructor of the payload may panic: it never runs.
        Err(payload) => {
            std::mem::forget(payload);
            exit_code::PANICKED
        }
    };
    // Only what this child printed itself: the parent flushed before the fork.
    let _ = io::stdout().flush();
    process::flush_c_streams();
    code
}
