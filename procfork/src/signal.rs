//! Signals by number and name.

use std::fmt;
use std::num::NonZero;

use crate::sys::signals::LAST_SIGNAL;

/// A signal: 1 to 64 on Linux, real-time signals included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "i32", into = "i32"))]
pub struct Signal(NonZero<i32>);

macro_rules! signals {
    ($($constant:ident = $number:ident, $doc:literal;)*) => {
        impl Signal {
            $(
                #[doc = concat!("`", stringify!($number), "`: ", $doc)]
                pub const $constant: Self = Self(NonZero::new(libc::$number).unwrap());
            )*

            /// The name, for example `"SIGKILL"`; `None` for real-time signals and 32, 33, which
            /// have numbers only.
            pub fn name(self) -> Option<&'static str> {
                match self.number() {
                    $(libc::$number => Some(stringify!($number)),)*
                    _ => None,
                }
            }
        }
    };
}

signals! {
    HUP = SIGHUP, "the terminal is gone.";
    INT = SIGINT, "interrupt from the keyboard.";
    QUIT = SIGQUIT, "quit from the keyboard.";
    ILL = SIGILL, "an illegal instruction.";
    TRAP = SIGTRAP, "a breakpoint.";
    ABRT = SIGABRT, "`abort` was called.";
    BUS = SIGBUS, "an access to memory that has no backing.";
    FPE = SIGFPE, "an arithmetic fault.";
    KILL = SIGKILL, "ends a process at once; cannot be caught.";
    USR1 = SIGUSR1, "for the program's own use.";
    SEGV = SIGSEGV, "an access to memory that is not mapped.";
    USR2 = SIGUSR2, "for the program's own use.";
    PIPE = SIGPIPE, "a write to a pipe that nobody reads.";
    ALRM = SIGALRM, "an alarm clock.";
    TERM = SIGTERM, "the polite request to end.";
    STKFLT = SIGSTKFLT, "unused by Linux.";
    CHLD = SIGCHLD, "a child has changed.";
    CONT = SIGCONT, "lets a stopped process go on.";
    STOP = SIGSTOP, "stops a process; cannot be caught.";
    TSTP = SIGTSTP, "stop from the keyboard.";
    TTIN = SIGTTIN, "a background process reads from the terminal.";
    TTOU = SIGTTOU, "a background process writes to the terminal.";
    URG = SIGURG, "urgent data on a socket.";
    XCPU = SIGXCPU, "the limit of CPU time is used up.";
    XFSZ = SIGXFSZ, "the limit of file size is reached.";
    VTALRM = SIGVTALRM, "a clock of the process's own time.";
    PROF = SIGPROF, "the profiler's clock.";
    WINCH = SIGWINCH, "the terminal has another size.";
    IO = SIGIO, "a descriptor is ready.";
    PWR = SIGPWR, "power fails.";
    SYS = SIGSYS, "a system call that is not allowed.";
}

impl Signal {
    /// The signal of this number, if Linux has one.
    pub fn new(number: i32) -> Option<Self> {
        NonZero::new(number)
            .filter(|n| (1..=LAST_SIGNAL).contains(&n.get()))
            .map(Self)
    }

    /// The number.
    pub fn number(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.number()),
            None => write!(f, "{}", self.number()),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({self})")
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> Self {
        signal.number()
    }
}

/// A number that is no signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no signal: they go from 1 to {LAST_SIGNAL}")]
pub struct NoSignal(pub i32);

impl TryFrom<i32> for Signal {
    type Error = NoSignal;

    fn try_from(number: i32) -> Result<Self, NoSignal> {
        Self::new(number).ok_or(NoSignal(number))
    }
}
